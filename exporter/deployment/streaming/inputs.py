"""The caller's arrays by input name, checked against the declarations."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....registration import UsageError
from .segment_models import GraphParts


def feeds(parts: GraphParts, inputs: Sequence[Any]) -> dict[str, Any]:
    """The arrays by input name, as numpy arrays, onnxruntime values, or lists for sequences.

    Raises:
        UsageError: an input is missing, unknown, or of another element type or shape.
    """
    names = list(parts.inputs)
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        given = dict(inputs[0])
    else:
        if len(inputs) > len(names):
            raise UsageError(f"the model has {len(names)} inputs, but {len(inputs)} arrays are passed")
        given = dict(zip(names, inputs, strict=False))
    wrong = [f"'{name}' is missing" for name in names if name not in given]
    wrong += [f"there is no input '{name}'" for name in given if name not in parts.inputs]
    if wrong:
        listed = ", ".join(map(repr, names)) or "none"
        raise UsageError(f"the arrays do not fit the inputs ({listed}): {'; '.join(wrong)}")
    return {name: _fed(parts.inputs[name], given[name]) for name in names}


def sizes_of_dimensions(parts: GraphParts, fed: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the inputs' named dimensions."""
    found: dict[str, int] = {}
    for name, value in fed.items():
        kind = parts.types.get(name)
        if kind is not None and kind.dims is not None:
            shape = _shape(value)
            found |= {dim: size for dim, size in zip(kind.dims, shape, strict=True) if isinstance(dim, str)}
    return found


def _fed(info: onnx.ValueInfoProto, value: Any) -> Any:
    import onnxruntime

    if info.type.WhichOneof("value") != "tensor_type":
        return value
    kind = info.type.tensor_type
    wanted = ir.DataType(kind.elem_type)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from ...running.tensors import to_ortvalue

        value = to_ortvalue(value)
    if isinstance(value, onnxruntime.OrtValue):
        if value.is_tensor():
            named = value.data_type().removeprefix("tensor(").removesuffix(")")
            _check(info, named.upper() == wanted.name, named, value.shape())
        return value
    if wanted == ir.DataType.STRING:
        return np.asarray(value, object)
    try:
        plain = isinstance(value, (bool, int, float, list, tuple))
        array = np.asarray(value, wanted.numpy() if plain else None, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"input '{info.name}' cannot be made an array of {wanted.name}: {error}") from error
    _check(info, array.dtype == wanted.numpy(), str(array.dtype), array.shape)
    if array.dtype.kind in "biuf":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        array.view(f"u{array.dtype.itemsize}"), kind.elem_type
    )


def _check(info: onnx.ValueInfoProto, is_same_type: bool, named: str, shape: Sequence[int]) -> None:
    kind = info.type.tensor_type
    if not is_same_type:
        wanted = ir.DataType(kind.elem_type).name
        raise UsageError(f"input '{info.name}' must have elements of {wanted}, not {named}")
    if not kind.HasField("shape"):
        return
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    if len(dims) != len(shape) or any(d not in (None, size) for d, size in zip(dims, shape, strict=True)):
        shown = ", ".join("?" if dim is None else str(dim) for dim in dims)
        raise UsageError(f"input '{info.name}' must have the shape [{shown}], not {list(shape)}")


def _shape(value: Any) -> Sequence[int]:
    return value.shape() if callable(value.shape) else value.shape

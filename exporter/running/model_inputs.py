"""`ModelInputs`: binds the arguments of a call to a model's inputs, converts and checks them.

Everything that runs a file passes its arguments through here, so that the same arguments are accepted and
refused everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np
import onnx
import onnx_ir as ir

from ...registration import UsageError
from ..captured_graph.dimensions import evaluate
from ..files.reading.carried import carried_by
from .input_sizes import TENSOR, DeclaredInput, InputSizes, shape_of
from .session import RuntimeValue, need_onnxruntime

if TYPE_CHECKING:
    import onnxruntime
    import torch

Feed: TypeAlias = dict[str, RuntimeValue]
"""Checked values by input name, as onnxruntime takes them."""
_MOST_LISTED = 20


def inputs_of_model(
    model: ir.Model,
    values: Iterable[ir.Value] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ModelInputs:
    """The inputs of a model in memory.

    Args:
        values: the inputs that a caller feeds; by default all.
        metadata: instead of the model's, that of the source graph that it was lowered from.
    """
    carried = carried_by(model)
    stored = {*model.graph.initializers, *carried.inputs}
    declared = []
    for value in model.graph.inputs if values is None else values:
        name = value.name or ""
        # Types that onnx-ir cannot represent are left out of the graph in memory.
        is_tensor = isinstance(value.type, ir.TensorType) or (
            value.type is None and name not in carried.types
        )
        dtype, shape = (value.dtype, _dims(value.shape)) if is_tensor else (None, None)
        declared.append(DeclaredInput(name, dtype, shape, is_tensor, name in stored))
    properties = model.metadata_props if metadata is None else metadata
    return ModelInputs(declared, properties, model.producer_name or "")


def inputs_of_message(model: onnx.ModelProto, omitted: Collection[str] = ()) -> ModelInputs:
    """The inputs of a model file's message, without those of these names."""
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {tensor.values.name for tensor in graph.sparse_initializer}
    declared = []
    for info in graph.input:
        if info.name in omitted:
            continue
        is_tensor = info.type.WhichOneof("value") in ("tensor_type", None)
        tensor = info.type.tensor_type
        dtype = ir.DataType(tensor.elem_type) if is_tensor and tensor.elem_type else None
        shape = None
        if is_tensor and tensor.HasField("shape"):
            dims = tensor.shape.dim
            shape = tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims
            )
        declared.append(DeclaredInput(info.name, dtype, shape, is_tensor, info.name in stored))
    properties = {entry.key: entry.value for entry in model.metadata_props}
    return ModelInputs(declared, properties, model.producer_name)


def inputs_of_session(session: onnxruntime.InferenceSession) -> ModelInputs:
    """The inputs of an `onnxruntime.InferenceSession`.

    onnxruntime does not distinguish scalars from tensors of unknown rank.
    """
    declared = []
    required = session.get_inputs()
    # Inputs for which the model has values.
    for entry in (*required, *session.get_overridable_initializers()):
        is_tensor = TENSOR.fullmatch(entry.type) is not None
        dtype, shape = element_type_of(entry.type), tuple(entry.shape) or None
        declared.append(DeclaredInput(entry.name, dtype, shape, is_tensor, entry not in required))
    facts = session.get_modelmeta()
    return ModelInputs(declared, facts.custom_metadata_map, facts.producer_name)


def element_type_of(name: str) -> ir.DataType | None:
    """The element type of a type by onnxruntime's name, `tensor(float16)`; None for other types."""
    tensor = TENSOR.fullmatch(name)
    return None if tensor is None else ir.DataType.__members__.get(tensor[1].upper())


def _dims(shape: ir.Shape | None) -> tuple[int | str | None, ...] | None:
    if shape is None:
        return None
    return tuple(dim.value if isinstance(dim, ir.SymbolicDim) else int(dim) for dim in shape)


class ModelInputs(InputSizes):
    """The inputs of a model, which binds and converts the values of a call; see `InputSizes`."""

    @property
    def dimension_names(self) -> list[str]:
        """The names of dimensions in the shapes of the inputs that a caller has to pass, in order."""
        if self.sizes is not None:
            return list(self.sizes.dimensions)
        dims = [dim for name in self.names for dim in self.declared[name].shape or ()]
        return [dim for dim in dict.fromkeys(dims) if isinstance(dim, str)]

    def shapes_at(self, sizes: Mapping[str, int], unknown_size: int) -> dict[str, list[int]]:
        """The shapes of the inputs that a caller has to pass, at sizes of the named dimensions.

        Args:
            unknown_size: that of dimensions without a name.
        """
        shapes = {}
        for name in self.names:
            dims = [
                evaluate(dim, sizes) if isinstance(dim, str) else dim
                for dim in self.declared[name].shape or ()
            ]
            shapes[name] = [dim if isinstance(dim, int) and dim >= 0 else unknown_size for dim in dims]
        return shapes

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by input name: positional ones in order, others by name.

        Raises:
            UsageError: an input is missing, passed twice, or unknown.
        """
        problems = [f"'{name}' is passed twice" for name in self.names[: len(args)] if name in kwargs]
        if len(args) > len(self.names):
            problems.append(f"{len(args)} arguments are passed")
        return self._complete({**dict(zip(self.names, args, strict=False)), **kwargs}, problems)

    def _complete(self, values: Mapping[str, object], wrong: Sequence[str] = ()) -> dict[str, object]:
        problems = [f"'{name}' is missing" for name in self.names if name not in values]
        problems += [f"there is no input '{name}'" for name in values if name not in self.declared]
        problems += wrong
        if problems:
            input_list = ", ".join(map(repr, self.names[:_MOST_LISTED])) or "none"
            input_list += ", …" if len(self.names) > _MOST_LISTED else ""
            raise UsageError(
                f"the arguments do not fit the inputs ({input_list}): {'; '.join(problems[:_MOST_LISTED])}"
            )
        return dict(values)

    def feed(self, values: Mapping[str, object]) -> Feed:
        """The values of a call for onnxruntime: `OrtValue`s, arrays of strings, and lists of sequences.

        Args:
            values: by input name: numpy arrays, torch tensors, numbers, nested lists, or onnxruntime values.

        Raises:
            UsageError: an input is missing or unknown, or has another element type.
            DimensionError: the model is not valid for the sizes of an input.
            InferenceError: onnxruntime is not installed.
        """
        if not isinstance(values, Mapping):
            raise UsageError(f"inputs must be a mapping from names to arrays, not {type(values).__name__}")
        need_onnxruntime()
        # The usual call has exactly the declared inputs, and needs no list of problems.
        if values.keys() != self.declared.keys():
            self._complete(values)
        converted = {name: _convert_value(self.declared[name], value) for name, value in values.items()}
        self.check_sizes({name: shape_of(value) for name, value in converted.items()})
        return converted


def is_torch_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _convert_value(declared: DeclaredInput, value: object) -> RuntimeValue:
    """A value as onnxruntime takes it, of the declared element type.

    Raises:
        UsageError: it has another one, or is no tensor.
    """
    import onnxruntime

    if not declared.is_tensor:
        return _convert_members(value)
    if is_torch_tensor(value):
        from . import torch_values

        torch_values.check_data(declared.name, value)
        value = torch_values.to_ortvalue(value)
    if isinstance(value, onnxruntime.OrtValue):
        if value.is_tensor():
            _check_type(declared, value.data_type())
        return value
    if declared.dtype == ir.DataType.STRING:
        return _strings(declared, value)
    array = _array(declared, value)
    try:
        if array.dtype.kind in "biuf":
            return onnxruntime.OrtValue.ortvalue_from_numpy(array)
        # numpy has no such element type: pass the bits, with the number that ONNX gives the type.
        number = int(ir.DataType.from_numpy(array.dtype))
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(f"u{array.dtype.itemsize}"), number
        )
    except (RuntimeError, TypeError, ValueError) as error:
        if declared.dtype is None and array.dtype.kind in "OU":
            return _strings(declared, array)
        raise UsageError(
            f"input '{declared.name}' cannot have elements of {array.dtype}: {' '.join(str(error).split())}"
        ) from error


def _check_type(declared: DeclaredInput, name: str) -> None:
    """Refuse an onnxruntime value of another element type, `tensor(float)`."""
    if declared.dtype is None or name == f"tensor({declared.dtype.name.lower()})":
        return
    dtype = element_type_of(name)
    _refuse_type(declared, name if dtype is None else _type_text(dtype))


def _refuse_type(declared: DeclaredInput, text: str) -> None:
    assert declared.dtype is not None
    raise UsageError(
        f"input '{declared.name}' must have elements of {_type_text(declared.dtype)}, not {text}"
    )


def _type_text(dtype: ir.DataType) -> str:
    """The name of an element type in numpy, `float32`."""
    return "string" if dtype == ir.DataType.STRING else str(dtype.numpy())


def _array(declared: DeclaredInput, value: object) -> np.ndarray:
    """An array of the declared element type.

    Numbers and lists are converted to that type if no value changes its kind: integers to floats, but not
    floats to integers.
    """
    is_untyped = isinstance(value, (bool, int, float, complex, list, tuple))
    declared_dtype = None if declared.dtype is None else declared.dtype.numpy()
    try:
        array = np.asarray(value, order="C")
        if is_untyped and declared_dtype is not None and array.dtype != declared_dtype:
            if array.size and not _is_convertible(array.dtype, declared_dtype):
                _refuse_type(declared, str(array.dtype))
            # From the value itself: a detour over float64 would round large integers.
            array = np.asarray(value if array.size else array, declared_dtype, order="C")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        if isinstance(error, UsageError):
            raise
        text = "" if declared.dtype is None else f" of {_type_text(declared.dtype)}"
        raise UsageError(
            f"input '{declared.name}' cannot be made an array{text}: {' '.join(str(error).split())}"
        ) from error
    if array.dtype.kind == "c" and declared_dtype is not None and declared_dtype.kind == "f":
        # Complex numbers are pairs of real numbers in ONNX.
        array = array.view(f"f{array.dtype.itemsize // 2}").reshape(*array.shape, 2)
    if declared_dtype is not None and array.dtype != declared_dtype:
        _refuse_type(declared, str(array.dtype))
    return array


def _is_convertible(dtype: np.dtype, target: np.dtype) -> bool:
    """Whether plain numbers of one type keep their meaning in another."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return target.kind != "b"
    return (dtype.kind == "f" and target.kind in "fcV") or dtype.kind == target.kind == "c"


def _strings(declared: DeclaredInput, value: object) -> np.ndarray:
    """An array of strings; onnxruntime would write other objects as text."""
    array = np.asarray(value, object)
    for element in array.flat:
        if not isinstance(element, str):
            raise UsageError(
                f"input '{declared.name}' must have elements of string, not {type(element).__name__}"
            )
    return array


def _convert_members(value: object) -> RuntimeValue:
    """A sequence, map or optional, with torch tensors as arrays."""
    if is_torch_tensor(value):
        from .torch_values import to_numpy

        return to_numpy(value)
    if isinstance(value, (list, tuple)):
        return [_convert_members(member) for member in value]
    if isinstance(value, dict):
        return {key: _convert_members(member) for key, member in value.items()}
    return value

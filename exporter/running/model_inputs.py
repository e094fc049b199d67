"""`ModelInputs`: binds the arguments of a call to a model's inputs, converts and checks them.

All code that runs a model uses this, so that the same arguments are accepted and refused everywhere.
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
from .sessions.session import RuntimeValue, need_onnxruntime

if TYPE_CHECKING:
    import onnxruntime
    import torch

Feed: TypeAlias = dict[str, RuntimeValue]
"""Checked values by input name, in the types that onnxruntime accepts."""
_MOST_LISTED = 20


def inputs_of_model(
    model: ir.Model, values: Iterable[ir.Value] | None = None, metadata: Mapping[str, str] | None = None
) -> ModelInputs:
    """Return the inputs of a model in memory.

    Args:
        values: the inputs that a caller feeds; by default all.
        metadata: the metadata to use instead of the model's, such as that of its source graph.
    """
    carried = carried_by(model)
    stored = {*model.graph.initializers, *carried.inputs}
    declared = []
    for value in model.graph.inputs if values is None else values:
        name = value.name or ""
        # A type that onnx-ir cannot represent is kept in `carried.types`, and is not a tensor.
        is_tensor = isinstance(value.type, ir.TensorType) or (
            value.type is None and name not in carried.types
        )
        dtype, shape = (value.dtype, _dims(value.shape)) if is_tensor else (None, None)
        declared.append(DeclaredInput(name, dtype, shape, is_tensor, name in stored))
    properties = model.metadata_props if metadata is None else metadata
    return ModelInputs(declared, properties, model.producer_name or "")


def inputs_of_message(model: onnx.ModelProto, omitted: Collection[str] = ()) -> ModelInputs:
    """Return the inputs of a model message, without those named in `omitted`."""
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
    """Return the inputs of an `onnxruntime.InferenceSession`.

    Scalars count as tensors of unknown rank, because onnxruntime does not distinguish the two.
    """
    declared = []
    required = session.get_inputs()
    # Overridable initializers are inputs with a default value.
    for entry in (*required, *session.get_overridable_initializers()):
        is_tensor = TENSOR.fullmatch(entry.type) is not None
        dtype, shape = element_type_of(entry.type), tuple(entry.shape) or None
        declared.append(DeclaredInput(entry.name, dtype, shape, is_tensor, entry not in required))
    facts = session.get_modelmeta()
    return ModelInputs(declared, facts.custom_metadata_map, facts.producer_name)


def element_type_of(name: str) -> ir.DataType | None:
    """Return the element type of an onnxruntime type name, `tensor(float16)`; None for other types."""
    tensor = TENSOR.fullmatch(name)
    return None if tensor is None else ir.DataType.__members__.get(tensor[1].upper())


def _dims(shape: ir.Shape | None) -> tuple[int | str | None, ...] | None:
    if shape is None:
        return None
    return tuple(dim.value if isinstance(dim, ir.SymbolicDim) else int(dim) for dim in shape)


class ModelInputs(InputSizes):
    """The inputs of a model; binds, converts and checks the values of a call. See `InputSizes`."""

    @property
    def dimension_names(self) -> list[str]:
        """The names of the dimensions of the inputs that a caller must pass, in order."""
        if self.sizes is not None:
            return list(self.sizes.dimensions)
        dims = [dim for name in self.names for dim in self.declared[name].shape or ()]
        return [dim for dim in dict.fromkeys(dims) if isinstance(dim, str)]

    def shapes_at(self, sizes: Mapping[str, int], unknown_size: int) -> dict[str, list[int]]:
        """Return the shapes of the inputs that a caller must pass, for sizes of the named dimensions.

        Args:
            sizes: the sizes by dimension name.
            unknown_size: the size for dimensions without a name.
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
        """Map the arguments of a call to input names: positional ones in order, others by name.

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
        """Convert and check the values of a call for onnxruntime.

        Args:
            values: by input name: numpy arrays, torch tensors, numbers, nested lists, or onnxruntime values.

        Returns:
            By input name: `OrtValue`s, arrays of strings, and lists for sequences.

        Raises:
            UsageError: an input is missing or unknown, or has another element type.
            DimensionError: the model is not valid for the sizes of an input.
            InferenceError: onnxruntime is not installed.
        """
        if not isinstance(values, Mapping):
            raise UsageError(f"inputs must be a mapping from names to arrays, not {type(values).__name__}")
        need_onnxruntime()
        # A call with exactly the declared inputs skips the search for problems.
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
    """Convert a value for onnxruntime.

    Raises:
        UsageError: the value has another element type than declared, or is not a tensor.
    """
    import onnxruntime

    if not declared.is_tensor:
        return _convert_members(value)
    if is_torch_tensor(value):
        from .sessions import torch_values

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
        # numpy lacks this element type: pass the bits, with ONNX's number of the type.
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
    """Refuse an onnxruntime value whose type name, such as `tensor(float)`, is not the declared one."""
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
    """Return numpy's name of an element type, `float32`."""
    return "string" if dtype == ir.DataType.STRING else str(dtype.numpy())


def _array(declared: DeclaredInput, value: object) -> np.ndarray:
    """Convert a value to an array of the declared element type.

    Numbers and lists are converted if the kind of number allows it: integers to floats, but not floats to
    integers. Arrays must have the type.
    """
    is_untyped = isinstance(value, (bool, int, float, complex, list, tuple))
    declared_dtype = None if declared.dtype is None else declared.dtype.numpy()
    try:
        array = np.asarray(value, order="C")
        if is_untyped and declared_dtype is not None and array.dtype != declared_dtype:
            if array.size and not _is_convertible(array.dtype, declared_dtype):
                _refuse_type(declared, str(array.dtype))
            # Converted from the original value, because float64 in between would round large integers.
            array = np.asarray(value if array.size else array, declared_dtype, order="C")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        if isinstance(error, UsageError):
            raise
        text = "" if declared.dtype is None else f" of {_type_text(declared.dtype)}"
        raise UsageError(
            f"input '{declared.name}' cannot be made an array{text}: {' '.join(str(error).split())}"
        ) from error
    if array.dtype.kind == "c" and declared_dtype is not None and declared_dtype.kind == "f":
        # The ONNX model takes complex numbers as real pairs, [..., 2].
        array = array.view(f"f{array.dtype.itemsize // 2}").reshape(*array.shape, 2)
    if declared_dtype is not None and array.dtype != declared_dtype:
        _refuse_type(declared, str(array.dtype))
    return array


def _is_convertible(dtype: np.dtype, target: np.dtype) -> bool:
    """Whether numbers of one type may be converted to another: bool < int < float < complex."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return target.kind != "b"
    return (dtype.kind == "f" and target.kind in "fcV") or dtype.kind == target.kind == "c"


def _strings(declared: DeclaredInput, value: object) -> np.ndarray:
    """Convert to an array of strings; refuse other elements, which onnxruntime would format as text."""
    array = np.asarray(value, object)
    for element in array.flat:
        if not isinstance(element, str):
            raise UsageError(
                f"input '{declared.name}' must have elements of string, not {type(element).__name__}"
            )
    return array


def _convert_members(value: object) -> RuntimeValue:
    """Convert the torch tensors in a sequence, map or optional to arrays."""
    if is_torch_tensor(value):
        from .sessions.torch_values import to_numpy

        return to_numpy(value)
    if isinstance(value, (list, tuple)):
        return [_convert_members(member) for member in value]
    if isinstance(value, dict):
        return {key: _convert_members(member) for key, member in value.items()}
    return value

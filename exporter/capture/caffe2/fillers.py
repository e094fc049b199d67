"""Makes the weights of a net, which are the results of fillers without inputs.

Random fillers, which only training nets need, draw from a generator whose seed is the blob's name. So the
same file always gives the same weights, but not the ones that Caffe2 would draw.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError
from ...files.reading import REMEDY, Bounds
from .arguments import arguments_by_name, constant_type, element_type, field_of, sizes_of, text_of, value_of
from .messages import Argument, OperatorDef

_LIST_FILLERS = {
    "GivenTensorFill": ir.DataType.FLOAT,
    "GivenTensorFp16Fill": ir.DataType.FLOAT16,
    "GivenTensorIntFill": ir.DataType.INT32,
    "Int8GivenIntTensorFill": ir.DataType.INT32,
    **{
        f"GivenTensor{name}Fill": ir.DataType[name.upper()]
        for name in ("Double", "Bool", "Int8", "Int16", "Int64", "UInt8", "UInt16", "String")
    },
}
"""Fillers with a list of values, and their element types."""
_BYTE_FILLERS = ("GivenTensorByteStringToUInt8Fill", "Int8GivenTensorFill")
"""Fillers whose values are bytes."""
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_CONSTANT_FILLERS = {"ConstantFill": None, "Float16ConstantFill": ir.DataType.FLOAT16}


def is_filler(operator: OperatorDef) -> bool:
    """Whether an operator is a filler without inputs, including random ones."""
    filler_types = (*_LIST_FILLERS, *_BYTE_FILLERS, *_CONSTANT_FILLERS, *_RANDOM_FILLERS, "RangeFill")
    return operator.type in filler_types and not operator.input and len(operator.output) == 1


class Fillers:
    """Makes the tensors of fillers, and notes the blobs with random numbers and their operators.

    The bytes that are not stored in the file are limited.
    """

    def __init__(self, bounds: Bounds):
        self._remaining_bytes = bounds.memory
        self.random: dict[str, str] = {}

    def tensor(self, operator: OperatorDef, label: str, *, random: bool) -> ir.TensorProtocol | None:
        """Return the tensor of a filler; None for others, and for random fillers unless `random` is set."""
        filler_type = operator.type
        if not is_filler(operator) or (filler_type in _RANDOM_FILLERS and not random):
            return None
        messages = arguments_by_name(operator, label)
        shape = sizes_of(value_of(messages["shape"], label) if "shape" in messages else [], label)
        if filler_type in _LIST_FILLERS or filler_type in _BYTE_FILLERS:
            return self._listed_values(filler_type, messages, shape, label)
        if filler_type in _CONSTANT_FILLERS:
            return self._constant(filler_type, messages, shape, label)
        # Random numbers and ranges are FLOAT or INT32.
        self._charge(math.prod(shape) * 4, label)
        if filler_type == "RangeFill":
            return ir.Tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape))
        # The blob's name as the seed gives the same weights for the same file.
        blob = text_of(operator.output[0], label)
        self.random[blob] = filler_type
        draw = np.random.Generator(np.random.PCG64(zlib.crc32(blob.encode())))
        numbers = {name: value_of(message, label) for name, message in messages.items()}
        try:
            return ir.Tensor(_RANDOM_FILLERS[filler_type](draw, shape, numbers))
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            raise ModelFileError(f"{label} cannot be filled: {error}") from None

    def _charge(self, size: int, label: str) -> None:
        """Count bytes of a generated weight."""
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise ModelFileError(f"{label} exceeds the limit on generated weights; {REMEDY}")

    def _listed_values(
        self, filler_type: str, messages: Mapping[str, Argument], shape: tuple[int, ...], label: str
    ) -> ir.TensorProtocol:
        if filler_type in _BYTE_FILLERS:
            data = _byte_values(messages, label)
            return ir.Tensor(_reshape(np.frombuffer(data, np.uint8), shape, label))
        dtype = _LIST_FILLERS[filler_type]
        if filler_type == "GivenTensorFill" and "dtype" in messages:
            dtype = element_type(value_of(messages["dtype"], label), label)
        values: Any = []
        if "values" in messages:
            field = "strings" if dtype == ir.DataType.STRING else "floats" if dtype in _FLOATS else "ints"
            value_field = field_of(messages["values"], label)
            if value_field not in ("", field):
                raise ModelFileError(
                    f"{label} has its values in field {value_field}, but Caffe2 reads field {field}"
                )
            values = getattr(messages["values"], field)
        if dtype == ir.DataType.STRING:
            if math.prod(shape) != len(values):
                raise ModelFileError(f"{label} has {len(values)} values for the shape {list(shape)}")
            return ir.StringTensor(list(values), shape=ir.Shape(shape))
        if dtype in _FLOATS:
            # The message stores floats, whatever the element type is.
            array = np.array(values, dtype=np.float32).astype(dtype.numpy(), copy=False)
        else:
            integers = np.array(values, dtype=np.int64)
            with np.errstate(invalid="ignore"):
                array = integers.astype(dtype.numpy())
            # The conversion wraps values out of range without an error.
            if dtype != ir.DataType.BOOL and not np.array_equal(array.astype(np.int64), integers):
                raise ModelFileError(f"{label} has values outside of the range of {dtype.name}")
        return ir.Tensor(_reshape(array, shape, label))

    def _constant(
        self, filler_type: str, messages: Mapping[str, Argument], shape: tuple[int, ...], label: str
    ) -> ir.TensorProtocol:
        dtype = _CONSTANT_FILLERS[filler_type] or constant_type(messages, label)
        value = value_of(messages["value"], label) if "value" in messages else 0
        if dtype == ir.DataType.STRING and isinstance(value, str):
            # An element is a Python object besides its text.
            self._charge(math.prod(shape) * (64 + len(value)), label)
            return ir.StringTensor([value.encode()] * math.prod(shape), shape=ir.Shape(shape))
        if dtype == ir.DataType.STRING or not isinstance(value, (int, float)):
            raise ModelFileError(f"{label} fills with {value!r}, which is not a number"[:300])
        self._charge(int(math.prod(shape) * dtype.itemsize), label)
        with np.errstate(over="ignore"):
            if dtype not in _FLOATS and not float(value).is_integer():
                raise ModelFileError(f"{label} fills {dtype.name} with {value}")
            try:
                return ir.Tensor(np.full(shape, value, dtype=dtype.numpy()))
            except (OverflowError, ValueError) as error:
                raise ModelFileError(f"{label} cannot be filled: {error}") from None


def _byte_values(messages: Mapping[str, Argument], label: str) -> bytes:
    """The bytes of a filler: one string, alone or as the only element of a list."""
    if "values" not in messages:
        return b""
    field = field_of(messages["values"], label)
    if field == "s":
        return bytes(messages["values"].s)
    if field == "strings" and len(messages["values"].strings) == 1:
        return bytes(messages["values"].strings[0])
    raise ModelFileError(f"{label} must have its values as one string of bytes")


def _reshape(array: np.ndarray, shape: tuple[int, ...], label: str) -> np.ndarray:
    try:
        return array.reshape(shape)
    except ValueError:
        raise ModelFileError(f"{label} has {array.size} values for the shape {list(shape)}"[:300]) from None


_Draw = Callable[[np.random.Generator, tuple[int, ...], Mapping[str, Any]], np.ndarray]


def _uniform(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    return draw.uniform(numbers.get("min", 0.0), numbers.get("max", 1.0), shape).astype(np.float32)


def _xavier(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, object]) -> np.ndarray:
    """Uniform numbers, scaled by the fan-in."""
    bound = math.sqrt(3 / max(math.prod(shape[1:]), 1))
    return _uniform(draw, shape, {"min": -bound, "max": bound})


def _gaussian(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    return draw.normal(numbers.get("mean", 0.0), numbers.get("std", 1.0), shape).astype(np.float32)


def _msra(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, object]) -> np.ndarray:
    """Normal numbers, scaled by the fan-out."""
    outputs = math.prod(shape) // max(shape[1], 1)
    return draw.normal(0.0, math.sqrt(2 / max(outputs, 1)), shape).astype(np.float32)


_RANDOM_FILLERS: dict[str, _Draw] = {
    "UniformFill": _uniform,
    "UniformIntFill": lambda draw, shape, numbers: draw.integers(
        numbers.get("min", 0), numbers.get("max", 1), shape, np.int32, endpoint=True
    ),
    "Float16UniformFill": lambda draw, shape, numbers: _uniform(draw, shape, numbers).astype(np.float16),
    "GaussianFill": _gaussian,
    "XavierFill": _xavier,
    "MSRAFill": _msra,
}

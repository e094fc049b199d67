"""The weights of a net, which are the results of fillers without inputs.

The random fillers, which only training nets need, draw from a generator that the blob's name seeds: the same
file always gives the same weights, which are not those that Caffe2 would draw.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError
from ...files.reading import REMEDY, Bounds
from .arguments import by_name, constant_type, element_type, kind_of, sizes_of, text_of, value_of

_GIVEN = {
    "GivenTensorFill": ir.DataType.FLOAT,
    "GivenTensorDoubleFill": ir.DataType.DOUBLE,
    "GivenTensorFp16Fill": ir.DataType.FLOAT16,
    "GivenTensorBoolFill": ir.DataType.BOOL,
    "GivenTensorInt8Fill": ir.DataType.INT8,
    "GivenTensorInt16Fill": ir.DataType.INT16,
    "GivenTensorIntFill": ir.DataType.INT32,
    "GivenTensorInt64Fill": ir.DataType.INT64,
    "GivenTensorUInt8Fill": ir.DataType.UINT8,
    "GivenTensorUInt16Fill": ir.DataType.UINT16,
    "GivenTensorStringFill": ir.DataType.STRING,
    "Int8GivenIntTensorFill": ir.DataType.INT32,
}
"""Fillers with a list of values, and their element types."""
_BYTES = ("GivenTensorByteStringToUInt8Fill", "Int8GivenTensorFill")
"""Fillers with bytes as values."""
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_CONSTANT = {"ConstantFill": None, "Float16ConstantFill": ir.DataType.FLOAT16}


def is_filler(operator: Any) -> bool:
    """Whether an operator is a filler without inputs, including random ones."""
    known = (*_GIVEN, *_BYTES, *_CONSTANT, *_RANDOM, "RangeFill")
    return operator.type in known and not operator.input and len(operator.output) == 1


class Fillers:
    """Makes the tensors of fillers, with a limit on the bytes that are not stored in the file.

    Attributes:
        random: the blobs that random fillers filled, with the operator.
    """

    def __init__(self, bounds: Bounds):
        self._left = bounds.memory
        self.random: dict[str, str] = {}

    def tensor(self, operator: Any, label: str, *, random: bool) -> ir.TensorProtocol | None:
        """Return the tensor of a filler; None for other operators, and for fillers with inputs.

        Args:
            random: whether random fillers count.

        Raises:
            ModelFileError: its arguments contradict each other, or the tensor is too large.
        """
        kind = operator.type
        if not is_filler(operator) or (kind in _RANDOM and not random):
            return None
        messages = by_name(operator, label)
        shape = sizes_of(value_of(messages["shape"], label) if "shape" in messages else [], label)
        if kind in _GIVEN or kind in _BYTES:
            return self._given_values(kind, messages, shape, label)
        if kind in _CONSTANT:
            return self._constant(kind, messages, shape, label)
        self._take(math.prod(shape) * 4, label)
        if kind == "RangeFill":
            return ir.Tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape))
        blob = text_of(operator.output[0], label)
        self.random[blob] = kind
        draw = np.random.Generator(np.random.PCG64(zlib.crc32(blob.encode())))
        numbers = {name: value_of(message, label) for name, message in messages.items()}
        try:
            return ir.Tensor(_RANDOM[kind](draw, shape, numbers))
        except (TypeError, ValueError, OverflowError, IndexError) as error:
            raise ModelFileError(f"{label} cannot be filled: {error}") from None

    def _take(self, size: int, label: str) -> None:
        """Subtract bytes from the remaining limit."""
        self._left -= size
        if self._left < 0:
            raise ModelFileError(f"{label} exceeds the limit on generated weights; {REMEDY}")

    def _given_values(
        self, kind: str, messages: Mapping[str, Any], shape: tuple[int, ...], label: str
    ) -> ir.TensorProtocol:
        if kind in _BYTES:
            data = _byte_values(messages, label)
            return ir.Tensor(_reshaped(np.frombuffer(data, np.uint8), shape, label))
        dtype = _GIVEN[kind]
        if kind == "GivenTensorFill" and "dtype" in messages:
            dtype = element_type(value_of(messages["dtype"], label), label)
        held: Any = []
        if "values" in messages:
            field = "strings" if dtype == ir.DataType.STRING else "floats" if dtype in _FLOATS else "ints"
            found = kind_of(messages["values"], label)
            if found not in ("", field):
                raise ModelFileError(
                    f"{label} has its values in field {found}, but Caffe2 reads field {field}"
                )
            held = getattr(messages["values"], field)
        if dtype == ir.DataType.STRING:
            if math.prod(shape) != len(held):
                raise ModelFileError(f"{label} has {len(held)} values for the shape {list(shape)}")
            return ir.StringTensor(list(held), shape=ir.Shape(shape))
        if dtype in _FLOATS:
            array = np.array(held, dtype=np.float32).astype(dtype.numpy(), copy=False)
        else:
            whole = np.array(held, dtype=np.int64)
            with np.errstate(invalid="ignore"):
                array = whole.astype(dtype.numpy())
            if dtype != ir.DataType.BOOL and not np.array_equal(array.astype(np.int64), whole):
                raise ModelFileError(f"{label} has values outside of the range of {dtype.name}")
        return ir.Tensor(_reshaped(array, shape, label))

    def _constant(
        self, kind: str, messages: Mapping[str, Any], shape: tuple[int, ...], label: str
    ) -> ir.TensorProtocol:
        dtype = _CONSTANT[kind] or constant_type(messages, label)
        value = value_of(messages["value"], label) if "value" in messages else 0
        if dtype == ir.DataType.STRING or not isinstance(value, (int, float)):
            raise ModelFileError(f"{label} fills with {value!r}, which is not a number"[:300])
        self._take(int(math.prod(shape) * dtype.itemsize), label)
        with np.errstate(over="ignore"):
            if dtype not in _FLOATS and not float(value).is_integer():
                raise ModelFileError(f"{label} fills {dtype.name} with {value}")
            try:
                return ir.Tensor(np.full(shape, value, dtype=dtype.numpy()))
            except (OverflowError, ValueError) as error:
                raise ModelFileError(f"{label} cannot be filled: {error}") from None


def _byte_values(messages: Mapping[str, Any], label: str) -> bytes:
    """Return the bytes of a filler: one string, alone or in a list."""
    if "values" not in messages:
        return b""
    kind = kind_of(messages["values"], label)
    if kind == "s":
        return bytes(messages["values"].s)
    if kind == "strings" and len(messages["values"].strings) == 1:
        return bytes(messages["values"].strings[0])
    raise ModelFileError(f"{label} must have its values as one string of bytes")


def _reshaped(array: np.ndarray, shape: tuple[int, ...], label: str) -> np.ndarray:
    try:
        return array.reshape(shape)
    except ValueError:
        raise ModelFileError(f"{label} has {array.size} values for the shape {list(shape)}"[:300]) from None


_Draw = Callable[[np.random.Generator, tuple[int, ...], Mapping[str, Any]], np.ndarray]


def _uniform(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    return draw.uniform(numbers.get("min", 0.0), numbers.get("max", 1.0), shape).astype(np.float32)


def _integers(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    return draw.integers(numbers.get("min", 0), numbers.get("max", 1), shape, np.int32, endpoint=True)


def _gaussian(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    return draw.normal(numbers.get("mean", 0.0), numbers.get("std", 1.0), shape).astype(np.float32)


def _xavier(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    """Uniform numbers, scaled by the fan-in."""
    bound = math.sqrt(3 / max(math.prod(shape[1:]), 1))
    return draw.uniform(-bound, bound, shape).astype(np.float32)


def _msra(draw: np.random.Generator, shape: tuple[int, ...], numbers: Mapping[str, Any]) -> np.ndarray:
    """Normal numbers, scaled by the fan-out."""
    outputs = math.prod(shape) // max(shape[1], 1)
    return draw.normal(0.0, math.sqrt(2 / max(outputs, 1)), shape).astype(np.float32)


_RANDOM: dict[str, _Draw] = {
    "UniformFill": _uniform,
    "UniformIntFill": _integers,
    "Float16UniformFill": lambda *given: _uniform(*given).astype(np.float16),
    "GaussianFill": _gaussian,
    "XavierFill": _xavier,
    "MSRAFill": _msra,
}

"""Decodes a TensorProto as the TensorFlow runtime does.

`tensor_content` has the elements in their layout in memory. Without it, the list field of the element type
has them: the last element of a short list is repeated, an empty list means zeros, and elements beyond the
shape are ignored.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from ....registration import ModelFileError
from ...files.reading.bounds import BOUNDS, REMEDY, Bounds
from ...files.reading.encodings.wire import varint
from .element_types import numpy_type, type_name
from .messages import TensorProto

MAXIMUM_RANK = 32
"""Maximum number of dimensions that every supported numpy allows."""
MAXIMUM_ELEMENTS = 2**48
_STRING_OVERHEAD = 64
"""Bytes that a string takes in memory besides its contents."""
_LISTS = {
    "DT_FLOAT": "float_val",
    "DT_DOUBLE": "double_val",
    "DT_HALF": "half_val",
    "DT_BFLOAT16": "half_val",
    "DT_COMPLEX64": "scomplex_val",
    "DT_COMPLEX128": "dcomplex_val",
    "DT_INT64": "int64_val",
    "DT_UINT32": "uint32_val",
    "DT_UINT64": "uint64_val",
    "DT_BOOL": "bool_val",
    "DT_STRING": "string_val",
}
_CAST_LISTS = ("int_val", "half_val", "float8_val")
"""Lists whose elements are integers that are cast to the element type, or are its bit patterns."""
_NARROW_TYPE_BITS = {"DT_INT4": 4, "DT_UINT4": 4, "DT_INT2": 2, "DT_UINT2": 2, "DT_FLOAT4_E2M1FN": 4}
"""The number of low bits that an element type of less than a byte uses in the byte of each element."""


def array_of(tensor: TensorProto, label: str, bounds: Bounds = BOUNDS) -> np.ndarray:
    """The contents of a TensorProto, as a read-only array over `tensor_content` where possible.

    Strings are objects, `bytes`. An array that repeats one element stores it once.

    Args:
        tensor: the message.
        label: its description in errors.
        bounds: `memory` bounds the bytes of repeated elements, which the message does not store.

    Raises:
        ModelFileError: the contents do not fit the type and the shape, the type has no contents in a file, or
            the repeated elements take too much memory.
    """
    name, dtype, shape = _header(tensor, label)
    if repeated_bytes(tensor, label) > bounds.memory:
        raise ModelFileError(f"{label} repeats its elements to more than {bounds.memory >> 20} MiB; {REMEDY}")
    count = math.prod(shape)
    if not count:
        array = np.empty(0, dtype)
    elif tensor.tensor_content and name == "DT_STRING":
        array = _object_array(_split_strings(tensor.tensor_content, count, label))
    elif tensor.tensor_content:
        array = elements_of(tensor.tensor_content, tensor.dtype, count, label)
    else:
        array = _repeat_last(_list_elements(tensor, name, dtype, count), count)
    array = array.reshape(shape)
    # The array may be a view of the file, and callers share it.
    array.flags.writeable = False
    return array


def set_header(tensor: TensorProto, dtype: int, shape: Iterable[int]) -> None:
    """Set the element type and the shape of an empty TensorProto."""
    tensor.dtype = dtype
    # Without this, a scalar would be a tensor without a shape.
    tensor.tensor_shape.SetInParent()
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)


def repeated_bytes(tensor: TensorProto, label: str) -> int:
    """The number of bytes of repeated elements, which the message does not store."""
    name, dtype, shape = _header(tensor, label)
    if tensor.tensor_content:
        return 0
    elements = getattr(tensor, _list_field(name))
    repeated = math.prod(shape) - len(elements) // (2 if "COMPLEX" in name else 1)
    if name == "DT_STRING":
        return max(0, repeated) * (_STRING_OVERHEAD + (len(elements[-1]) if elements else 0))
    return max(0, repeated) * dtype.itemsize


def _header(tensor: TensorProto, label: str) -> tuple[str, np.dtype, tuple[int, ...]]:
    """The name of the element type, its numpy type, and the shape; an unknown rank means a scalar."""
    name, dtype = type_name(tensor.dtype), numpy_type(tensor.dtype)
    if dtype is None:
        raise ModelFileError(f"{label} is of {name}, which cannot be stored in a file")
    sizes = tuple(dimension.size for dimension in tensor.tensor_shape.dim)
    if sizes and tensor.tensor_shape.unknown_rank:
        raise ModelFileError(f"{label} has {len(sizes)} dimensions and an unknown rank")
    if min(sizes, default=0) < 0:
        raise ModelFileError(f"{label} has a negative size, {min(sizes)}")
    if len(sizes) > MAXIMUM_RANK:
        raise ModelFileError(f"{label} has {len(sizes)} dimensions, more than {MAXIMUM_RANK}")
    if math.prod(size for size in sizes if size) >= MAXIMUM_ELEMENTS:
        raise ModelFileError(f"{label} has sizes that exceed any memory")
    return name, dtype, sizes


def _list_field(name: str) -> str:
    """The list field that has the elements of a type."""
    return _LISTS.get(name, "float8_val" if "FLOAT" in name else "int_val")


def elements_of(content: bytes | np.ndarray, number: int, count: int, label: str) -> np.ndarray:
    """The elements in bytes with the layout of memory, little-endian; a view of the bytes where possible."""
    name, dtype = type_name(number), numpy_type(number)
    if dtype is None:
        raise ModelFileError(f"{label} is of {name}, which cannot be stored in a file")
    content_bytes = np.frombuffer(content, np.uint8)
    if content_bytes.size != count * dtype.itemsize:
        raise ModelFileError(
            f"{label} is {count * dtype.itemsize} bytes by its type and shape, but contains "
            f"{content_bytes.size}"
        )
    if name == "DT_BOOL" and content_bytes.size and content_bytes.max() > 1:
        raise ModelFileError(f"{label} holds booleans that are neither 0 nor 1")
    is_narrow = name in _NARROW_TYPE_BITS
    return _decode_narrow(content_bytes, name, dtype) if is_narrow else content_bytes.view(dtype)


def _split_strings(content: bytes, count: int, label: str) -> list[bytes]:
    """Strings in `tensor_content`: all lengths in base 128, then all contents."""
    lengths: list[int] = []
    position = 0
    while len(lengths) < count and position >= 0:
        length, position = varint(content, position, len(content))
        lengths.append(length)
    ends = list(itertools.accumulate(lengths, initial=position))
    if position < 0 or ends[-1] != len(content):
        raise ModelFileError(f"{label} has {count} strings by its shape, but its contents differ from that")
    return [content[start:end] for start, end in itertools.pairwise(ends)]


def _list_elements(tensor: TensorProto, name: str, dtype: np.dtype, count: int) -> np.ndarray:
    """The elements in the list field, at most `count`; one zero if the list is empty."""
    field = _list_field(name)
    elements = getattr(tensor, field)
    if name == "DT_STRING":
        return _object_array(elements[:count] or [b""])
    # The list has the real and the imaginary part of each number.
    if "COMPLEX" in name:
        pairs = np.array(elements[: 2 * count], np.empty(0, dtype).real.dtype)
        return pairs[: len(pairs) // 2 * 2].view(dtype) if len(pairs) > 1 else np.zeros(1, dtype)
    if field not in _CAST_LISTS:
        return np.array(elements[:count] or [0], dtype)
    # Bit patterns, and numbers that the type does not have, lose their upper bits.
    is_bytes = field == "float8_val"
    numbers = np.frombuffer(elements[:count] or b"\0", np.uint8) if is_bytes else elements[:count] or [0]
    patterns = np.array(numbers, np.int32).astype(f"u{dtype.itemsize}")
    return _decode_narrow(patterns, name, dtype) if name in _NARROW_TYPE_BITS else patterns.view(dtype)


def _decode_narrow(patterns: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    """Decode elements of less than a byte from the low bits of bytes."""
    bits: np.ndarray = patterns & (2 ** _NARROW_TYPE_BITS[name] - 1)
    if "_INT" in name:
        sign = 2 ** (_NARROW_TYPE_BITS[name] - 1)
        bits = (bits ^ sign).astype(np.int8) - sign
    decoded: np.ndarray = bits.view(dtype)
    return decoded


def _object_array(strings: Sequence[bytes]) -> np.ndarray:
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


def _repeat_last(elements: np.ndarray, count: int) -> np.ndarray:
    """Repeat the last element until there are as many as the shape has."""
    if len(elements) == count:
        return elements
    if len(elements) == 1:
        # One element in memory serves the whole array.
        return np.broadcast_to(elements, count)
    repeated = np.empty(count, elements.dtype)
    repeated[: len(elements)] = elements
    repeated[len(elements) :] = elements[-1]
    return repeated

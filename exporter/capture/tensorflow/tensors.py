"""Decodes a TensorProto as the TensorFlow runtime does.

`tensor_content` has the elements as in memory. Without it, the list field of the element type has them: a
list that is too short repeats its last element, an empty one means zeros, and elements beyond the shape are
left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....registration import ModelFileError
from ...files.reading.bounds import BOUNDS, REMEDY, Bounds
from ...files.reading.encodings.wire import varint
from .element_types import numpy_type, type_name

_MAXIMUM_RANK = 32
"""Dimensions of an array in every supported numpy."""
_MAXIMUM_ELEMENTS = 2**48
_OF_STRING = 64
"""Bytes of a string in memory beside its contents."""
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
_CAST = ("int_val", "half_val", "float8_val")
"""Lists whose elements are cast to the element type."""
_NARROW = {"DT_INT4": 4, "DT_UINT4": 4, "DT_INT2": 2, "DT_UINT2": 2, "DT_FLOAT4_E2M1FN": 4}
"""The bits of an element type that takes a byte for each element, and uses its low bits."""


def array_of(tensor: Any, shown: str, bounds: Bounds = BOUNDS) -> np.ndarray:
    """The contents of a TensorProto, as a read-only array over `tensor_content` where possible.

    Strings are objects, `bytes`. An array that repeats one element stores it once.

    Args:
        tensor: the message.
        shown: what errors call it.
        bounds: `memory` bounds the bytes that the message stands for and does not store.

    Raises:
        ModelFileError: the contents do not fit the type and the shape, the type has no contents in a file, or
            the message stands for too much memory.
    """
    name, dtype, shape = _header(tensor, shown)
    if repeated_bytes(tensor, shown) > bounds.memory:
        raise ModelFileError(f"{shown} repeats its elements to more than {bounds.memory >> 20} MiB; {REMEDY}")
    count = math.prod(shape)
    if not count:
        array = np.empty(0, dtype)
    elif tensor.tensor_content:
        array = _content(tensor, count, shown)
    else:
        array = _filled(_listed(tensor, name, dtype, count), count)
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def repeated_bytes(tensor: Any, shown: str) -> int:
    """The number of bytes of repeated elements, which a message does not store.

    Raises:
        ModelFileError: the shape is invalid, or the type has no contents in a file.
    """
    name, dtype, shape = _header(tensor, shown)
    if tensor.tensor_content:
        return 0
    held = getattr(tensor, _field(name))
    missing = math.prod(shape) - len(held) // (2 if "COMPLEX" in name else 1)
    if name == "DT_STRING":
        return max(0, missing) * (_OF_STRING + (len(held[-1]) if held else 0))
    return max(0, missing) * dtype.itemsize


def _header(tensor: Any, shown: str) -> tuple[str, np.dtype, tuple[int, ...]]:
    """The element type, in TensorFlow and in numpy, and the shape; an unknown rank means a scalar."""
    name, dtype = type_name(tensor.dtype), numpy_type(tensor.dtype)
    if dtype is None:
        raise ModelFileError(f"{shown} is of {name}, which cannot be stored in a file")
    sizes = tuple(dimension.size for dimension in tensor.tensor_shape.dim)
    if sizes and tensor.tensor_shape.unknown_rank:
        raise ModelFileError(f"{shown} has {len(sizes)} dimensions and an unknown rank")
    if min(sizes, default=0) < 0:
        raise ModelFileError(f"{shown} has a negative size, {min(sizes)}")
    if len(sizes) > _MAXIMUM_RANK:
        raise ModelFileError(f"{shown} has {len(sizes)} dimensions, more than {_MAXIMUM_RANK}")
    if math.prod(size for size in sizes if size) >= _MAXIMUM_ELEMENTS:
        raise ModelFileError(f"{shown} has sizes that exceed any memory")
    return name, dtype, sizes


def _field(name: str) -> str:
    """The list that has the elements of a type."""
    return _LISTS.get(name, "float8_val" if "FLOAT" in name else "int_val")


def _content(tensor: Any, count: int, shown: str) -> np.ndarray:
    """The elements of `tensor_content`."""
    if type_name(tensor.dtype) == "DT_STRING":
        return _objects(_strings(tensor.tensor_content, count, shown))
    return elements_of(tensor.tensor_content, tensor.dtype, count, shown)


def elements_of(content: bytes | np.ndarray, number: int, count: int, shown: str) -> np.ndarray:
    """The elements in bytes that are as in memory, little-endian; a view of them where possible.

    Args:
        content: the bytes.
        number: the element type, not one of strings.
        count: how many elements there are.
        shown: what errors call them.

    Raises:
        ModelFileError: the bytes do not fit.
    """
    name, dtype = type_name(number), numpy_type(number)
    if dtype is None:
        raise ModelFileError(f"{shown} is of {name}, which cannot be stored in a file")
    held = np.frombuffer(content, np.uint8)
    if held.size != count * dtype.itemsize:
        raise ModelFileError(
            f"{shown} is {count * dtype.itemsize} bytes by its type and shape, but contains {held.size}"
        )
    if name == "DT_BOOL" and held.size and held.max() > 1:
        raise ModelFileError(f"{shown} holds booleans that are neither 0 nor 1")
    return _narrow(held, name, dtype) if name in _NARROW else held.view(dtype)


def _strings(content: bytes, count: int, shown: str) -> list[bytes]:
    """Strings in `tensor_content`: all lengths in base 128, then all contents."""
    lengths: list[int] = []
    position = 0
    while len(lengths) < count and position >= 0:
        length, position = varint(content, position, len(content))
        lengths.append(length)
    ends = list(itertools.accumulate(lengths, initial=position))
    if position < 0 or ends[-1] != len(content):
        raise ModelFileError(f"{shown} has {count} strings by its shape, but its contents differ from that")
    return [content[start:end] for start, end in itertools.pairwise(ends)]


def _listed(tensor: Any, name: str, dtype: np.dtype, count: int) -> np.ndarray:
    """The elements of the list, at most `count`; without any, one zero."""
    field = _field(name)
    held = getattr(tensor, field)
    if name == "DT_STRING":
        return _objects(held[:count] or [b""])
    if "COMPLEX" in name:
        pairs = np.array(held[: 2 * count], np.empty(0, dtype).real.dtype)
        return pairs[: len(pairs) // 2 * 2].view(dtype) if len(pairs) > 1 else np.zeros(1, dtype)
    if field not in _CAST:
        return np.array(held[:count] or [0], dtype)
    # Bit patterns, and numbers that the type does not have, lose their upper bits.
    held = np.frombuffer(held[:count] or b"\0", np.uint8) if field == "float8_val" else held[:count] or [0]
    patterns = np.array(held, np.int32).astype(f"u{dtype.itemsize}")
    return _narrow(patterns, name, dtype) if name in _NARROW else patterns.view(dtype)


def _narrow(patterns: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    """Decode elements of less than a byte from the low bits of bytes."""
    bits = patterns & (2 ** _NARROW[name] - 1)
    if "_INT" in name:
        sign = 2 ** (_NARROW[name] - 1)
        result: np.ndarray = ((bits ^ sign).astype(np.int8) - sign).view(dtype)
        return result
    result = bits.view(dtype)
    return result


def _objects(strings: Sequence[bytes]) -> np.ndarray:
    made = np.empty(len(strings), object)
    made[:] = strings
    return made


def _filled(elements: np.ndarray, count: int) -> np.ndarray:
    """As many elements as the shape has; the last one is repeated."""
    if len(elements) == count:
        return elements
    if len(elements) == 1:
        return np.broadcast_to(elements, count)
    made = np.empty(count, elements.dtype)
    made[: len(elements)] = elements
    made[len(elements) :] = elements[-1]
    return made

"""Reads string tensors of a tensor bundle: all lengths, a checksum, then all contents."""

import math

import numpy as np

from .....registration import ModelFileError
from ....files.reading.encodings.wire import varint
from .checksums import crc32c, unmask_checksum

_LONG = 2**32
"""Lengths below this enter the checksum as four bytes, others as eight."""
_STRING = 100
"""Bytes of a short string, its length and its place in an array."""
_MEMORY, _MEMORY_PER_BYTE = 150_000_000, 2


def strings_of(data: np.ndarray, shape: tuple[int, ...], checksum: int, order: str, label: str) -> np.ndarray:
    """The strings in an entry's bytes, as an array of `bytes`.

    The entry's masked checksum covers the lengths in fixed width, their checksum and the contents; `order` is
    the byte order of the machine that wrote them, "<" or ">".
    """
    count = math.prod(shape)
    # The length of each string takes at least a byte: refuse before allocating the array.
    if count > data.size:
        raise ModelFileError(f"{label} has {count} strings by its shape, but {data.size} bytes")
    if count * _STRING > _MEMORY + _MEMORY_PER_BYTE * data.size:
        raise ModelFileError(f"{label} cannot be read: it has {count} strings, which would take much memory")
    strings = np.empty(count, object)
    if not data.size:
        strings.flags.writeable = False
        return strings.reshape(shape)
    lengths, position = [], 0
    for _ in range(count):
        length, position = varint(data.data, position, data.size)
        if position < 0:
            raise ModelFileError(f"{label} is damaged: the length of a string is malformed")
        lengths.append(length)
    start = position + 4
    if start + sum(lengths) != data.size:
        raise ModelFileError(f"{label} is damaged: its strings and its size do not agree")
    if max(lengths, default=0) < _LONG:
        fixed_width = np.array(lengths, f"{order}u4").tobytes()
    else:
        fixed_width = b"".join(np.array(n, f"{order}u{4 if n < _LONG else 8}").tobytes() for n in lengths)
    crc = crc32c(fixed_width)
    stored = data[position:start].tobytes()
    if unmask_checksum(int.from_bytes(stored, "little" if order == "<" else "big")) != crc:
        raise ModelFileError(f"{label} is damaged: the checksum of its lengths does not match")
    if crc32c(data[start:], crc32c(stored, crc)) != unmask_checksum(checksum):
        raise ModelFileError(f"{label} is damaged: its checksum does not match")
    for index, length in enumerate(lengths):
        strings[index] = data[start : start + length].tobytes()
        start += length
    strings.flags.writeable = False
    return strings.reshape(shape)

"""The keys of a partitioned variable's slices, in an encoding whose order is that of the encoded values."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = b"\0"
"""The start of every such key; a name does not start with it."""


def slice_key(name: str, extents: Sequence[tuple[int, int]]) -> bytes:
    """The key of a slice.

    Args:
        name: the variable's name.
        extents: the start and the length of each dimension; (0, -1) is the whole dimension.
    """
    escaped = name.encode().replace(b"\0", b"\0\xff")
    numbers = (_signed(number) for extent in extents for number in extent)
    return b"".join([PREFIX, escaped, b"\0\1", _unsigned(len(extents)), *numbers])


def _unsigned(number: int) -> bytes:
    """The number of bytes, then the bytes."""
    size = (number.bit_length() + 7) // 8
    return bytes([size]) + number.to_bytes(size, "big")


def _signed(number: int) -> bytes:
    """As many leading bits equal to the sign's inverse as there are bytes, then the number."""
    bits = (number if number >= 0 else ~number).bit_length()
    size = bits // 7 + 1
    header = (1 << size) - 1 << 8 * size - size
    return ((number & (1 << 8 * size) - 1) ^ header).to_bytes(size, "big")

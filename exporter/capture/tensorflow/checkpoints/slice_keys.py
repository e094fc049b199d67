"""Encodes the keys of a partitioned variable's slices: the keys sort in the order of the encoded values."""

from collections.abc import Sequence

PREFIX = b"\0"
"""The first byte of every such key; no variable name starts with it."""


def slice_key(name: str, extents: Sequence[tuple[int, int]]) -> bytes:
    """The key of a slice of a variable; an extent of (0, -1) is the whole dimension."""
    escaped = name.encode().replace(b"\0", b"\0\xff")
    numbers = (_encode_signed(number) for extent in extents for number in extent)
    # An unsigned number is the number of its bytes, then its bytes; the rank takes at most one.
    rank = bytes([1, len(extents)]) if extents else b"\0"
    return b"".join([PREFIX, escaped, b"\0\1", rank, *numbers])


def _encode_signed(number: int) -> bytes:
    """Encode a number in two's complement, after as many inverted sign bits as the encoding has bytes."""
    bits = (number if number >= 0 else ~number).bit_length()
    size = bits // 7 + 1
    header = (1 << size) - 1 << 8 * size - size
    return ((number & (1 << 8 * size) - 1) ^ header).to_bytes(size, "big")

"""The CRC-32C of checkpoints, computed over rows of words with numpy."""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, bit-reversed."""
_MASK_DELTA = 0xA282EAD8
_ROWS = (4096, 128)
"""Words in a row, powers of two: of long data, and of what that leaves."""
_ALL = 0xFFFFFFFF


def crc32c(data: bytes | memoryview | np.ndarray, crc: int = 0) -> int:
    """The CRC-32C of bytes that follow those with the checksum `crc`."""
    return _folded(crc ^ _ALL, np.frombuffer(data, np.uint8), _ROWS) ^ _ALL


def _folded(state: int, data: np.ndarray, rows: tuple[int, ...]) -> int:
    """The CRC state after some bytes.

    Each row of words is multiplied by x to the power of the distance to the next row, and added to that row.
    The last sum is the checksum of all rows.
    """
    if not rows:
        return _fed(state, data.tobytes())
    count = data.size // (4 * rows[0])
    if count > 1:
        words = data[: count * 4 * rows[0]].view("<u4").reshape(count, rows[0])
        low, high = _shifts(rows[0])
        total = words[0].astype(np.uint32)
        total[0] ^= np.uint32(state)
        for row in words[1:]:
            total = low.take(total & 0xFFFF) ^ high.take(total >> 16) ^ row
        state = _folded(0, total.astype("<u4").view(np.uint8), rows[1:])
        data = data[count * 4 * rows[0] :]
    return _folded(state, data, rows[1:])


def unmasked(stored: int) -> int:
    """The checksum that is stored in a masked form, because data may itself contain checksums."""
    rotated = (stored - _MASK_DELTA) & _ALL
    return (rotated >> 17 | rotated << 15) & _ALL


def masked(crc: int) -> int:
    """The masked form of a checksum, in which it is stored."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


def _fed(state: int, data: bytes) -> int:
    table = _table()
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state


@functools.cache
def _table() -> tuple[int, ...]:
    """The state after one byte, for each byte."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


@functools.cache
def _shifts(words: int) -> tuple[np.ndarray, np.ndarray]:
    """The state after a row of zeros, for each lower and each upper half of a state."""
    image = np.array([_fed(1 << bit, b"\0") for bit in range(32)], np.uint32)
    # The map of one zero byte, applied twice, is that of two.
    for _ in range((4 * words).bit_length() - 1):
        image = _mapped(image, image)
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _mapped(image, halves), _mapped(image, halves << np.uint32(16))


def _mapped(image: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Apply a linear map, given by the images of each bit, to states."""
    found = np.zeros_like(states)
    for bit in range(32):
        found ^= np.where(states >> np.uint32(bit) & np.uint32(1), image[bit], np.uint32(0))
    return found

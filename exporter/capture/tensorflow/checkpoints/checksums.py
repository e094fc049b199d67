"""The CRC-32C of checkpoints, computed over rows of words with numpy."""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, bit-reversed."""
_MASK_DELTA = 0xA282EAD8
_ROWS = (4096, 128)
"""Words in a row, powers of two: first for long data, then for the remainder of it."""
_ALL_BITS = 0xFFFFFFFF


def crc32c(data: bytes | memoryview | np.ndarray, crc: int = 0) -> int:
    """The CRC-32C of bytes that follow bytes with the checksum `crc`."""
    return _fold_rows(crc ^ _ALL_BITS, np.frombuffer(data, np.uint8), _ROWS) ^ _ALL_BITS


def _fold_rows(state: int, data: np.ndarray, rows: tuple[int, ...]) -> int:
    """Compute the CRC state after some bytes.

    A CRC is a remainder of polynomials over GF(2). Each row of words is multiplied by x to the power of the
    distance to the next row, and added to that row. The last sum has the checksum of all rows. This way numpy
    processes a row at a time, where a Python loop would process a byte.
    """
    if not rows:
        return _feed_bytes(state, data.tobytes())
    count = data.size // (4 * rows[0])
    if count > 1:
        words = data[: count * 4 * rows[0]].view("<u4").reshape(count, rows[0])
        low, high = _shifts(rows[0])
        total = words[0].astype(np.uint32)
        # The CRC of the preceding data enters like four leading bytes of this data.
        total[0] ^= np.uint32(state)
        for row in words[1:]:
            total = low.take(total & 0xFFFF) ^ high.take(total >> 16) ^ row
        state = _fold_rows(0, total.astype("<u4").view(np.uint8), rows[1:])
        data = data[count * 4 * rows[0] :]
    return _fold_rows(state, data, rows[1:])


def unmask_checksum(stored: int) -> int:
    """Undo the mask of a stored checksum: checksums are masked because data may contain checksums itself."""
    rotated = (stored - _MASK_DELTA) & _ALL_BITS
    return (rotated >> 17 | rotated << 15) & _ALL_BITS


def _feed_bytes(state: int, data: bytes) -> int:
    table = _byte_table()
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state


@functools.cache
def _byte_table() -> tuple[int, ...]:
    """The state after one byte, for each byte."""
    states = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        states.append(byte)
    return tuple(states)


@functools.cache
def _shifts(words: int) -> tuple[np.ndarray, np.ndarray]:
    """The state after a row of zeros, for each lower and each upper half of a state."""
    image = np.array([_feed_bytes(1 << bit, b"\0") for bit in range(32)], np.uint32)
    # The map of one zero byte, applied twice, is that of two.
    for _ in range((4 * words).bit_length() - 1):
        image = _apply_map(image, image)
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _apply_map(image, halves), _apply_map(image, halves << np.uint32(16))


def _apply_map(image: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Apply a linear map, given by the images of each bit, to states."""
    mapped = np.zeros_like(states)
    for bit in range(32):
        mapped ^= np.where(states >> np.uint32(bit) & np.uint32(1), image[bit], np.uint32(0))
    return mapped

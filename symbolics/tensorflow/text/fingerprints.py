"""FarmHash's Fingerprint64, the hash of strings in TensorFlow's buckets and crossed features.

Source of the algorithm: https://github.com/google/farmhash, `farmhashna::Hash64`. All numbers are unsigned
and have 64 bits.
"""

K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MASK = 2**64 - 1
_SEED = 81


def to_int64(number: int) -> int:
    """The INT64 with the bits of an unsigned number."""
    return number - (number >> 63 << 64)


def _word(text: bytes, position: int, size: int = 8) -> int:
    """A little-endian number; negative positions count from the end."""
    position += len(text) if position < 0 else 0
    return int.from_bytes(text[position : position + size], "little")


def _rotate(number: int, bits: int) -> int:
    """Rotate to the right."""
    number &= _MASK
    return (number >> bits | number << (64 - bits)) & _MASK


def _mix(number: int) -> int:
    number &= _MASK
    return number ^ number >> 47


def _join(low: int, high: int, factor: int) -> int:
    """One number from two."""
    mixed = _mix(((low ^ high) & _MASK) * factor)
    return _mix((high & _MASK ^ mixed) * factor) * factor & _MASK


def _hash_16_bytes(text: bytes) -> int:
    """Up to 16 bytes."""
    length = len(text)
    factor = K2 + length * 2
    if length >= 8:
        first, last = _word(text, 0) + K2, _word(text, -8)
        return _join(_rotate(last, 37) * factor + first, (_rotate(first, 25) + last) * factor, factor)
    if length >= 4:
        return _join(length + (_word(text, 0, 4) << 3), _word(text, -4, 4), factor)
    if length:
        ends = text[0] + (text[length >> 1] << 8), length + (text[-1] << 2)
        return _mix(ends[0] * K2 ^ ends[1] * K0) * K2 & _MASK
    return K2


def _halves(text: bytes, factor: int, scale: int) -> tuple[int, int, int]:
    """The two numbers of the first and last 16 bytes, and the scaled first 8 bytes."""
    first, second = _word(text, 0) * scale, _word(text, 8)
    last, before = _word(text, -8) * factor, _word(text, -16) * K2
    low = _rotate(first + second, 43) + _rotate(last, 30) + before
    return low, first + _rotate(second + K2, 18) + last, first


def _hash_64_bytes(text: bytes) -> int:
    """From 33 to 64 bytes."""
    factor = K2 + len(text) * 2
    low, high, first = _halves(text, factor, K2)
    joined = _join(low, high, factor)
    third, fourth = _word(text, 16) * factor, _word(text, 24)
    fifth, sixth = (low + _word(text, -32)) * factor, (joined + _word(text, -24)) * factor
    ends = (
        _rotate(third + fourth, 43) + _rotate(fifth, 30) + sixth,
        third + _rotate(fourth + first, 18) + fifth,
    )
    return _join(*ends, factor)


def _mix_block(block: bytes, low: int, high: int) -> tuple[int, int]:
    """Two numbers from 32 bytes and two numbers."""
    words = [_word(block, position) for position in (0, 8, 16, 24)]
    first = low + words[0]
    total = first + words[1] + words[2]
    high = _rotate(high + first + words[3], 21) + _rotate(total, 44)
    return total + words[3] & _MASK, high + first & _MASK


def _step(state: tuple[int, ...], block: bytes, factor: int, weight: int) -> tuple[int, ...]:
    """Read 64 bytes into the state: x, y, z and the pairs v and w."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotate(x + y + v0 + _word(block, 8), 37) * factor ^ w1 * weight
    y = _rotate(y + v1 + _word(block, 48), 42) * factor + v0 * weight + _word(block, 40)
    z = _rotate(z + w0, 33) * factor
    v = _mix_block(block[:32], v1 * factor, x + w0)
    w = _mix_block(block[32:], z + w1, y + _word(block, 16))
    return z & _MASK, y & _MASK, x & _MASK, *v, *w


def fingerprint(text: bytes) -> int:
    """The fingerprint of a string."""
    length = len(text)
    if length <= 16:
        return _hash_16_bytes(text)
    if length <= 32:
        factor = K2 + length * 2
        return _join(*_halves(text, factor, K1)[:2], factor)
    if length <= 64:
        return _hash_64_bytes(text)
    y = _SEED * K1 + 113
    state: tuple[int, ...] = (_SEED * K2 + _word(text, 0), y, _mix(y * K2 + 113) * K2, 0, 0, 0, 0)
    for start in range(0, (length - 1) // 64 * 64, 64):
        state = _step(state, text[start : start + 64], K1, 1)
    x, y, z, v0, v1, w0, w1 = state
    factor = K1 + ((z & 0xFF) << 1)
    w0 += (length - 1) & 63
    v0 += w0
    # The last 64 bytes overlap the blocks before.
    x, y, z, v0, v1, w0, w1 = _step((x, y, z, v0, v1, w0 + v0, w1), text[-64:], factor, 9)
    low = _join(v0, w0, factor) + _mix(y) * K0 + z
    return _join(low, _join(v1, w1, factor) + x, factor)

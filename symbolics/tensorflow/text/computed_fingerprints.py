"""Fingerprint64 of the decimal texts of computed integers, and fingerprints of crossed features.

ONNX cannot read the bytes of strings, but those of the text of an integer are its digits. The numbers are
INT64, whose products and sums wrap around to the same bits as those of `fingerprints`, the same algorithm.
"""

import numpy as np

from ....registration import DataType, GraphContext, Value
from ...compositions.special.formulas import Formula
from .fingerprints import K0, K1, K2, to_int64

_LENGTH = 20
"""The longest text, that of -2**63."""
_CROSS_FACTOR = to_int64(0xC6A4A7935BD1E995)


def shift_right(number: Formula, bits: int) -> Formula:
    """Shift without regard to the sign."""
    shifted = number.call("aten::floor_divide", 1 << bits)
    return shifted.call("aten::remainder", 1 << (64 - bits))


def _rotate(number: Formula, bits: int) -> Formula:
    """Rotate to the right."""
    return shift_right(number, bits) + number * to_int64(1 << (64 - bits))


def _mix(number: Formula) -> Formula:
    return number.call("aten::bitwise_xor", shift_right(number, 47))


def _join(low: Formula, high: Formula, factor: Formula) -> Formula:
    """One number from two."""
    mixed = _mix(low.call("aten::bitwise_xor", high) * factor)
    return _mix(high.call("aten::bitwise_xor", mixed) * factor) * factor


def bucket_of(fingerprint: Formula, count: int) -> Value:
    """The remainder of an unsigned number."""
    remainder = fingerprint.call("aten::remainder", count)
    correction = (fingerprint < 0).cast(DataType.INT64) * (2**64 % count)
    return (remainder + correction).call("aten::remainder", count).value


class _Digits:
    """The characters of decimal texts, [numbers, 20], and the words that the algorithm reads.

    Attributes:
        length: the number of characters, [numbers].
    """

    def __init__(self, g: GraphContext, integers: Value):
        self.g = g
        column = Formula(g, g.op("Unsqueeze", g.cast(integers, DataType.INT64), axes=[1]))
        powers = Formula(g, g.constant(10 ** np.arange(_LENGTH - 1, dtype=np.int64)))
        # Both operators round towards zero, so that -2**63, which has no absolute value, needs no exception.
        quotients = Formula(g, g.op("Div", column.value, powers.value))
        digits = abs(quotients.call("aten::fmod", 10))
        zero = g.op("Mul", column.value, 0)
        is_negative = (column < 0).cast(DataType.INT64)
        is_present = (~quotients.equals(0)).cast(DataType.INT64)
        count = g.call("aten::clamp", g.call("aten::sum", is_present.value, [1], True), 1)
        length = Formula(g, count) + is_negative
        positions = Formula(g, g.constant(np.arange(_LENGTH, dtype=np.int64)))
        # The last character comes first, because the text ends at the lowest digit.
        padded = Formula(g, g.op("Concat", digits.value, zero, axis=1))
        signs = (positions < length).chosen(ord("-"), padded * 0)
        self._reversed = (positions < Formula(g, count)).chosen(padded + ord("0"), signs)
        self._column_length = length
        source = Formula(g, g.call("aten::clamp", (length - 1 - positions).value, 0))
        self._characters = self._reversed.call("aten::gather", 1, source)
        self.length = self._flat(length)

    def _flat(self, column: Formula) -> Formula:
        return Formula(self.g, self.g.op("Squeeze", column.value, axes=[1]))

    def _dot(self, characters: Formula, factors: np.ndarray) -> Formula:
        return self._flat(
            Formula(self.g, self.g.op("MatMul", characters.value, self.g.constant(factors[:, None])))
        )

    def word(self, position: int, size: int = 8) -> Formula:
        """A little-endian number; negative positions count from the end."""
        factors = np.zeros(_LENGTH, np.int64)
        powers = 256 ** np.arange(size, dtype=np.int64)
        if position < 0:
            factors[-position - size : -position] = powers[::-1]
            return self._dot(self._reversed, factors)
        factors[position : position + size] = powers
        return self._dot(self._characters, factors)

    def middle(self) -> Formula:
        """The character at half of the length."""
        half = self._column_length.call("aten::floor_divide", 2)
        return self._flat(self._characters.call("aten::gather", 1, half))


def fingerprint_of_integers(g: GraphContext, integers: Value) -> Formula:
    """The fingerprints of the texts of INT64 numbers [numbers]."""
    text = _Digits(g, integers)
    length = text.length
    factor = length * 2 + to_int64(K2)
    # From 8 to 16 characters.
    first, last = text.word(0) + to_int64(K2), text.word(-8)
    low = _rotate(last, 37) * factor + first
    high = (_rotate(first, 25) + last) * factor
    # More than 16.
    scaled, second, scaled_last = text.word(0) * to_int64(K1), text.word(8), last * factor
    rotated = _rotate(scaled + second, 43) + _rotate(scaled_last, 30) + text.word(-16) * to_int64(K2)
    low = (length > 16).chosen(rotated, low)
    high = (length > 16).chosen(scaled + _rotate(second + to_int64(K2), 18) + scaled_last, high)
    # From 4 to 7.
    low = (length < 8).chosen(length + text.word(0, 4) * 8, low)
    high = (length < 8).chosen(text.word(-4, 4), high)
    # Up to 3.
    start = (text.word(0, 1) + text.middle() * 256) * to_int64(K2)
    end = (length + text.word(-1, 1) * 4) * to_int64(K0)
    short = _mix(start.call("aten::bitwise_xor", end)) * to_int64(K2)
    return (length < 4).chosen(short, _join(low, high, factor))


def concatenate_fingerprints(first: Formula, second: Formula) -> Formula:
    """The fingerprint of two, `FingerprintCat64` of tensorflow/core/platform/fingerprint.h."""
    mixed = _mix(second * _CROSS_FACTOR) * _CROSS_FACTOR
    result = first.call("aten::bitwise_xor", _CROSS_FACTOR).call("aten::bitwise_xor", mixed)
    return _mix(_mix(result * _CROSS_FACTOR) * _CROSS_FACTOR)

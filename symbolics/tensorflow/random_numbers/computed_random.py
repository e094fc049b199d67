"""Philox random numbers of computed seeds and shapes: the same numbers as those of `stateless_random`.

Words of 32 bits are INT64 numbers. Products and sums of INT64 wrap around to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....registration import DataType, GraphContext, Value
from ...compositions.bits import wrap_to_type
from ...compositions.matrices import run_loop
from ...compositions.size_arithmetic import Size, compute
from ...compositions.special.formulas import Formula
from .._common import range_vector, set_shape
from ..text.computed_fingerprints import shift_right

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LEAST_UNIFORM = 1e-7
FRACTION_BITS = {DataType.FLOAT: 23, DataType.FLOAT16: 10, DataType.BFLOAT16: 7}
"""How many bits of a word make a uniform number of each type."""
_WORD = 1 << 32
_CANDIDATES = 8
"""The counters of which truncated numbers are selected: that so few suffice is certain to 1 in 10**18."""
_RESERVED = 256
"""The numbers that TensorFlow's generator sets aside for each truncated number."""
_LIMIT = 2.0

Convert = Callable[[Formula, DataType], Formula]
"""Turns a vector of words into numbers of a type."""


def split_words(number: Formula) -> list[Formula]:
    """The low and the high word of a number of 64 bits."""
    return [number.call("aten::remainder", _WORD), shift_right(number, 32)]


@dataclass(frozen=True)
class Generator:
    """The state of a generator.

    Attributes:
        key: two words.
        counter: four words, the lowest one first. All words are vectors of one element.
    """

    key: Sequence[Formula]
    counter: Sequence[Formula]

    @classmethod
    def of_numbers(cls, g: GraphContext, key: int, counter: int) -> Generator:
        """A constant state."""
        numbers = [key, counter, counter >> 64]
        words = [(number >> shift) % _WORD for number in numbers for shift in (0, 32)]
        first, second, *others = (Formula(g, g.constant([word], DataType.INT64)) for word in words)
        return cls([first, second], others)

    def words(self, offsets: Formula) -> Formula:
        """Words [offsets, 4]: those that the generator draws when its counter is advanced by each offset."""
        g = offsets.g
        carry = offsets
        columns: list[Formula] = []
        for word in self.counter:
            low, carry = split_words(word + carry)
            columns.append(low)

        def mix(iteration: Value, *values: Value) -> list[Value]:
            first, second, third, fourth = (Formula(g, value) for value in values)
            keys = (
                (key + Formula(g, iteration) * step).call("aten::remainder", _WORD)
                for key, step in zip(self.key, KEY_STEPS, strict=True)
            )
            (low, high), (other_low, other_high) = (
                split_words(word * factor) for word, factor in zip((first, third), MULTIPLIERS, strict=True)
            )
            mixed = [
                high_word.call("aten::bitwise_xor", word).call("aten::bitwise_xor", key)
                for high_word, word, key in zip((other_high, high), (second, fourth), keys, strict=True)
            ]
            return [set_shape(word.value, [None]) for word in (mixed[0], other_low, mixed[1], low)]

        results = run_loop(g, ROUNDS, mix, [set_shape(column.value, [None]) for column in columns])
        joined = g.op("Concat", *(g.op("Unsqueeze", column, axes=[1]) for column in results), axis=1)
        return Formula(g, set_shape(joined, [None, 4]))


def uniform(words: Formula, dtype: DataType) -> Formula:
    """Numbers from 0 to below 1, whose fraction is the low bits."""
    if dtype == DataType.DOUBLE:
        high, low = _pairs(words)
        bits = high.call("aten::remainder", 1 << 20) * _WORD + low
        return bits.cast(dtype) * 2.0**-52
    count = FRACTION_BITS[dtype]
    return (words.call("aten::remainder", 1 << count).cast(DataType.FLOAT) * 2.0**-count).cast(dtype)


def normal(words: Formula, dtype: DataType) -> Formula:
    """Normal numbers by the transformation of Box and Muller: two of two uniform ones."""
    number_type = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    first, second = _pairs(uniform(words, number_type))
    radius = (first.op("Max", LEAST_UNIFORM).log() * -2.0).sqrt()
    angle = second * (2.0 * math.pi)
    g = words.g
    columns = (g.op("Unsqueeze", (part * radius).value, axes=[1]) for part in (angle.sin(), angle.cos()))
    pairs = g.op("Concat", *columns, axis=1)
    return Formula(g, set_shape(g.op("Reshape", pairs, [-1]), [None])).cast(dtype)


def integers(words: Formula, dtype: DataType) -> Formula:
    """All bits of a number."""
    if dtype.bitwidth == 64:
        low, high = _pairs(words)
        words = high * _WORD + low
    g = words.g
    return Formula(g, g.cast(wrap_to_type(g, words.value, dtype), dtype))


def remainders(words: Formula, dtype: DataType, count: Formula) -> Formula:
    """Random INT64 numbers from 0 to `count - 1`, which is at most 2**61."""
    if dtype.bitwidth != 64:
        return words.call("aten::remainder", count)
    number = integers(words, DataType.INT64)
    # The number is unsigned: its quarter is one of INT64.
    quarter, low_bits = shift_right(number, 2), number.call("aten::remainder", 4)
    return (quarter.call("aten::remainder", count) * 4 + low_bits).call("aten::remainder", count)


def draw_truncated(generator: Generator, count: Size, dtype: DataType) -> Formula:
    """At least `count` normal numbers between -2 and 2: the first such ones of each group."""
    g = generator.key[0].g
    number_type = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    per_group = 2 if dtype == DataType.DOUBLE else 4
    groups = compute(g, "floordiv", compute(g, "add", count, per_group - 1), per_group)
    starts = Formula(g, g.op("Unsqueeze", range_vector(g, groups), axes=[1])) * (per_group * _RESERVED // 4)
    offsets = (starts + Formula(g, g.constant(list(range(_CANDIDATES))))).value
    words = generator.words(Formula(g, set_shape(g.op("Reshape", offsets, [-1]), [None])))
    numbers = normal(Formula(g, g.op("Reshape", words.value, [-1])), number_type)
    numbers = Formula(g, g.op("Reshape", numbers.value, [-1, _CANDIDATES * per_group]))
    is_taken = (abs(numbers) < _LIMIT).cast(DataType.INT64)
    rank = is_taken.call("aten::cumsum", 1) * is_taken
    columns = [
        g.op("ReduceSum", rank.equals(index + 1).chosen(numbers, 0.0).value, axes=[1], keepdims=1)
        for index in range(per_group)
    ]
    return Formula(g, g.op("Reshape", g.op("Concat", *columns, axis=1), [-1])).cast(dtype)


def _pairs(numbers: Formula) -> tuple[Formula, Formula]:
    """The first and the second numbers of pairs."""
    g = numbers.g
    pairs = set_shape(g.op("Reshape", numbers.value, [-1, 2]), [None, 2])
    first, second = (Formula(g, set_shape(g.op("Gather", pairs, i, axis=1), [None])) for i in (0, 1))
    return first, second

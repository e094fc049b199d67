"""Random numbers that a seed determines: the numbers that TensorFlow draws.

The generator is Philox 4x32 with 10 rounds, as on the CPU. With a constant seed and shape its numbers
are computed here and become constants; otherwise the file computes them. Semantics:
tensorflow/core/lib/random/philox_random.h and random_distributions.h, and
tensorflow/core/kernels/stateless_random_ops.cc.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, product
from ...compositions.special.formulas import Formula
from .._common import constant_integers, integers, number, range_vector, set_shape, shape_operand
from . import computed_random
from .computed_random import (
    FRACTION_BITS,
    KEY_STEPS,
    LEAST_UNIFORM,
    MULTIPLIERS,
    ROUNDS,
    Generator,
    split_words,
)

_SCRAMBLING_KEY = 0x02461E293EC8F720
_MASK = 0xFFFFFFFF
_PHILOX, _AUTOMATIC = 1, 3

State = tuple[int, int] | Generator
"""The key of 64 bits and the counter of 128 bits, or a computed state."""


def _philox(state: tuple[int, int], groups: int) -> np.ndarray:
    """Numbers of 32 bits, four for each value of the counter, as UINT64."""
    key, counter = state
    words = np.array(
        [[(counter + i) >> (32 * w) & _MASK for w in range(4)] for i in range(groups)], np.uint64
    )
    words = words.reshape(groups, 4)
    key_words = [key & _MASK, key >> 32 & _MASK]
    mask, half = np.uint64(_MASK), np.uint64(32)
    # Products of two numbers of 32 bits fit into 64.
    for _ in range(ROUNDS):
        first, second = (
            words[:, column] * np.uint64(m) for column, m in zip((0, 2), MULTIPLIERS, strict=True)
        )
        words = np.stack(
            [
                (second >> half) ^ words[:, 1] ^ np.uint64(key_words[0]),
                second & mask,
                (first >> half) ^ words[:, 3] ^ np.uint64(key_words[1]),
                first & mask,
            ],
            axis=1,
        )
        key_words = [(word + step) & _MASK for word, step in zip(key_words, KEY_STEPS, strict=True)]
    return words.reshape(-1)


def _wide(words: np.ndarray) -> np.ndarray:
    """Numbers of 64 bits from pairs, the lower half first."""
    pairs = words.reshape(-1, 2)
    joined: np.ndarray = pairs[:, 0] | pairs[:, 1] << np.uint64(32)
    return joined


def _uniform(words: np.ndarray, dtype: DataType) -> np.ndarray:
    """Numbers from 0 to below 1: the low bits are the fraction of a number from 1 to below 2."""
    numbers: np.ndarray
    if dtype == DataType.DOUBLE:
        pairs = words.reshape(-1, 2)
        fraction = (pairs[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32) | pairs[:, 1]
        numbers = (fraction | np.uint64(1023 << 52)).view(np.float64) - 1.0
        return numbers
    bits = FRACTION_BITS[dtype]
    numbers = ((words & np.uint64(2**bits - 1)).astype(np.float32) * np.float32(2.0**-bits)).astype(
        dtype.numpy()
    )
    return numbers


def _normal(words: np.ndarray, dtype: DataType) -> np.ndarray:
    """Normal numbers by the transformation of Box and Muller: two of two uniform ones."""
    # Half precision is computed in single precision.
    number_type = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    uniform = _uniform(words, number_type).reshape(-1, 2)
    scalar = uniform.dtype.type
    radius = np.sqrt(scalar(-2.0) * np.log(np.maximum(uniform[:, 0], scalar(np.float32(LEAST_UNIFORM)))))
    angle = scalar(2.0 * math.pi) * uniform[:, 1]
    return np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=1).reshape(-1)


def _words_per_number(dtype: DataType) -> int:
    return 2 if dtype in (DataType.DOUBLE, DataType.INT64, DataType.UINT64) else 1


def _draw(
    g: GraphContext,
    state: State,
    shape: Value,
    dtype: DataType,
    distribution: Callable[[np.ndarray, DataType], np.ndarray],
    computed_distribution: computed_random.Convert,
) -> Value:
    """Random numbers from one state, a constant if the state and the shape are constant."""
    sizes = integers(g, shape)
    if sizes is None or isinstance(state, Generator):
        groups = compute(
            g,
            "floordiv",
            compute(g, "add", compute(g, "mul", _count(g, shape), _words_per_number(dtype)), 3),
            4,
        )
        words = _generator(g, state).words(Formula(g, range_vector(g, groups)))
        flat = Formula(g, g.op("Reshape", words.value, [-1]))
        return _reshape_first(g, computed_distribution(flat, dtype).value, shape)
    g.reserve(*sizes)
    count = math.prod(sizes)
    # An even count of groups serves the distributions that take pairs.
    groups = -(-count * _words_per_number(dtype) // 4)
    numbers = distribution(_philox(state, groups), dtype)[:count]
    return g.constant(numbers.astype(dtype.numpy()).reshape(sizes), dtype)


def _count(g: GraphContext, shape: Value) -> Size:
    """The number of elements of a shape."""
    sizes = shape_operand(g, shape)
    if isinstance(sizes, Value):
        return g.op("ReduceProd", sizes, axes=[0], keepdims=0)
    return product(g, sizes)


def _reshape_first(g: GraphContext, numbers: Value, shape: Value) -> Value:
    """As many of the numbers as the shape needs, in this shape."""
    first = g.call("aten::slice", self=numbers, dim=0, start=0, end=_count(g, shape))
    sizes = shape_operand(g, shape)
    if isinstance(sizes, Value):
        return g.op("Reshape", first, sizes)
    return g.call("aten::reshape", self=first, shape=list(sizes))


def _generator(g: GraphContext, state: State) -> Generator:
    return state if isinstance(state, Generator) else Generator.of_numbers(g, *state)


def _state_of_operand(g: GraphContext, seed: Value) -> State:
    """The state that TensorFlow derives from a seed of two numbers."""
    numbers = integers(g, seed)
    # TensorFlow scrambles the seed, so that seeds that differ in few bits give unrelated numbers.
    if numbers is None:
        words = [word for index in (0, 1) for word in split_words(_element(g, seed, index))]
        scrambler = Generator.of_numbers(g, _SCRAMBLING_KEY, 0)
        mixed_words = Generator(scrambler.key, words).words(Formula(g, g.constant([0])))
        columns = [Formula(g, g.op("Gather", mixed_words.value, index, axis=1)) for index in range(4)]
        return Generator(columns[:2], [column * 0 for column in columns[:2]] + columns[2:])
    if len(numbers) != 2:
        raise g.refuse(f"'seed' must have two numbers, not {len(numbers)}")
    counter = (numbers[0] % 2**64) | (numbers[1] % 2**64) << 64
    mixed = [int(word) for word in _philox((_SCRAMBLING_KEY, counter), 1)]
    return mixed[0] | mixed[1] << 32, mixed[2] << 64 | mixed[3] << 96


def _element(g: GraphContext, vector: Value, index: int) -> Formula:
    return Formula(g, set_shape(g.op("Gather", g.cast(vector, DataType.INT64), [index], axis=0), [1]))


def _state_of_key(g: GraphContext, key: Value, counter: Value, alg: Value) -> State:
    if constant_integers(g, alg, "alg")[0] not in (_PHILOX, _AUTOMATIC):
        raise g.refuse("generators other than Philox are not supported")
    key_numbers, counters = integers(g, key), integers(g, counter)
    if key_numbers is None or counters is None:
        counter_words = [word for index in (0, 1) for word in split_words(_element(g, counter, index))]
        return Generator(split_words(_element(g, key, 0)), counter_words)
    return key_numbers[0], counters[0] | counters[1] << 64


@onnx_symbolic("tf::StatelessRandomGetAlg")
def stateless_random_get_alg(g: GraphContext) -> Value:
    return g.constant(_PHILOX, DataType.INT32)


@onnx_symbolic("tf::StatelessRandomGetKeyCounter")
def stateless_random_get_key_counter(g: GraphContext, seed: Value) -> list[Value]:
    state = _state_of_operand(g, seed)
    if isinstance(state, Generator):
        numbers = [
            g.cast((high * (1 << 32) + low).value, DataType.UINT64)
            for low, high in (state.key, state.counter[:2], state.counter[2:])
        ]
        return [numbers[0], g.op("Concat", *numbers[1:], axis=0)]
    key, counter = state
    counters = np.array([counter & 2**64 - 1, counter >> 64], np.uint64)
    return [g.constant(np.array([key], np.uint64)), g.constant(counters)]


@onnx_symbolic("tf::StatelessRandomGetKeyCounterAlg")
def stateless_random_get_key_counter_alg(g: GraphContext, seed: Value) -> list[Value]:
    return [*stateless_random_get_key_counter(g, seed), stateless_random_get_alg(g)]


def _register(name: str, draw: Callable[[GraphContext, State, Value, DataType], Value]) -> None:
    """Register the operators of a distribution, with a seed and with the state of a generator."""

    @onnx_symbolic(f"tf::Stateless{name}")
    def draw_by_seed(g: GraphContext, shape: Value, seed: Value, dtype: DataType = DataType.FLOAT) -> Value:
        return draw(g, _state_of_operand(g, seed), shape, dtype)

    @onnx_symbolic(f"tf::Stateless{name}V2")
    def draw_by_state(
        g: GraphContext,
        shape: Value,
        key: Value,
        counter: Value,
        alg: Value,
        dtype: DataType = DataType.FLOAT,
    ) -> Value:
        return draw(g, _state_of_key(g, key, counter, alg), shape, dtype)


def _integers(words: np.ndarray, dtype: DataType) -> np.ndarray:
    bits = _wide(words) if _words_per_number(dtype) == 2 else words.astype(np.uint32)
    return bits.view(dtype.numpy())


def _draw_truncated(g: GraphContext, state: State, shape: Value, dtype: DataType) -> Value:
    numbers = computed_random.draw_truncated(_generator(g, state), _count(g, shape), dtype)
    return _reshape_first(g, numbers.value, shape)


_register(
    "RandomUniform", partial(_draw, distribution=_uniform, computed_distribution=computed_random.uniform)
)
_register("RandomNormal", partial(_draw, distribution=_normal, computed_distribution=computed_random.normal))
_register(
    "RandomUniformFullInt",
    partial(_draw, distribution=_integers, computed_distribution=computed_random.integers),
)
_register("TruncatedNormal", _draw_truncated)


def _draw_in_range(g: GraphContext, state: State, shape: Value, minval: Value, maxval: Value) -> Value:
    dtype = g.dtype(minval) or DataType.INT32
    bounds = [integers(g, bound) for bound in (minval, maxval)]
    low, high = (None if bound is None else bound[0] for bound in bounds)
    if low is None or high is None:
        if dtype.bitwidth == 64:
            raise g.refuse("'minval' and 'maxval' of 64 bits must be constant")
        start = Formula(g, g.constant(number(g, minval), DataType.INT64))
        span = Formula(g, g.constant(number(g, maxval), DataType.INT64)) - start
        state = _generator(g, state)
    elif high <= low:
        raise g.refuse("'maxval' must be above 'minval'")
    else:
        start, span = (Formula(g, g.constant(item, DataType.INT64)) for item in (low, high - low))

    def convert(words: np.ndarray, dtype: DataType) -> np.ndarray:
        bits = _wide(words) if _words_per_number(dtype) == 2 else words
        assert low is not None
        assert high is not None
        numbers: np.ndarray = (bits % np.uint64(high - low)).astype(np.int64) + low
        return numbers

    def convert_computed(words: Formula, dtype: DataType) -> Formula:
        if dtype.bitwidth == 64 and low is not None and high is not None and high - low > 1 << 61:
            raise g.refuse("the range has more than 2**61 numbers")
        return (computed_random.remainders(words, dtype, span) + start).cast(dtype)

    return _draw(g, state, shape, dtype, convert, convert_computed)


@onnx_symbolic("tf::StatelessRandomUniformInt")
def stateless_random_uniform_int(
    g: GraphContext, shape: Value, seed: Value, minval: Value, maxval: Value
) -> Value:
    return _draw_in_range(g, _state_of_operand(g, seed), shape, minval, maxval)


@onnx_symbolic("tf::StatelessRandomUniformIntV2")
def stateless_random_uniform_int_v2(
    g: GraphContext, shape: Value, key: Value, counter: Value, alg: Value, minval: Value, maxval: Value
) -> Value:
    return _draw_in_range(g, _state_of_key(g, key, counter, alg), shape, minval, maxval)

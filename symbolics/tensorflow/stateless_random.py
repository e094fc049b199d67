"""Random numbers that a seed determines: with a constant seed and shape, the numbers that TensorFlow draws.

The generator is Philox 4x32 with 10 rounds, as on TensorFlow's CPU; its numbers are computed here and become
constants. Semantics: tensorflow/core/lib/random/philox_random.h and random_distributions.h, and
tensorflow/core/kernels/stateless_random_ops.cc.
"""

import math
from collections.abc import Callable

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ...registration.warning import warn
from ..compositions.size_arithmetic import Size
from ._common import constant_integers, integers, known_elements

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_SCRAMBLING_KEY = (0x3EC8F720, 0x02461E29)
_MASK = 0xFFFFFFFF
_ROUNDS = 10
_LEAST_UNIFORM = np.float32(1e-7)
_PHILOX, _AUTOMATIC = 1, 3

State = tuple[int, int]
"""The key of 64 bits, and the counter of 128 bits."""


def _philox(state: State, groups: int) -> np.ndarray:
    """Numbers of 32 bits, four for each value of the counter, as UINT64."""
    key, counter = state
    words = np.array(
        [[(counter + i) >> (32 * w) & _MASK for w in range(4)] for i in range(groups)], np.uint64
    )
    words = words.reshape(groups, 4)
    key_words = [key & _MASK, key >> 32 & _MASK]
    mask, half = np.uint64(_MASK), np.uint64(32)
    # Products of two numbers of 32 bits fit into 64.
    for _ in range(_ROUNDS):
        first, second = (
            words[:, column] * np.uint64(m) for column, m in zip((0, 2), _MULTIPLIERS, strict=True)
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
        key_words = [(word + step) & _MASK for word, step in zip(key_words, _KEY_STEPS, strict=True)]
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
    bits, exponent, narrow = (10, 15, np.uint16) if dtype == DataType.FLOAT16 else (23, 127, np.uint32)
    patterns = (words & np.uint64(2**bits - 1)) | np.uint64(exponent << bits)
    real_type = dtype.numpy()
    numbers = patterns.astype(narrow).view(real_type) - real_type.type(1)
    return numbers


def _normal(words: np.ndarray, dtype: DataType) -> np.ndarray:
    """Normal numbers by the transformation of Box and Muller: two of two uniform ones."""
    uniform = _uniform(words, dtype).reshape(-1, 2)
    number = uniform.dtype.type
    radius = np.sqrt(number(-2.0) * np.log(np.maximum(uniform[:, 0], number(_LEAST_UNIFORM))))
    angle = number(2.0 * math.pi) * uniform[:, 1]
    return np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=1).reshape(-1)


def _words_per_number(dtype: DataType) -> int:
    return 2 if dtype in (DataType.DOUBLE, DataType.INT64, DataType.UINT64) else 1


def _draw(
    g: GraphContext,
    state: State,
    shape: Value,
    dtype: DataType,
    convert: Callable[[np.ndarray], np.ndarray],
    draw_others: Callable[[list[Size]], Value] | None = None,
) -> Value:
    """A constant of random numbers.

    Args:
        draw_others: draws numbers of the same distribution for computed sizes, by ONNX's generators.
    """
    sizes = integers(g, shape)
    if sizes is None:
        if draw_others is None:
            raise g.refuse("'shape' must be constant")
        warn(
            "random numbers of a computed shape are drawn by ONNX's generators: other numbers than "
            "TensorFlow's, and others in each run"
        )
        return draw_others(known_elements(g, shape))
    g.reserve(*sizes)
    count = math.prod(sizes)
    # An even count of groups serves the distributions that take pairs.
    groups = -(-count * _words_per_number(dtype) // 4)
    numbers = convert(_philox(state, groups))[:count]
    return g.constant(numbers.astype(dtype.numpy()).reshape(sizes), dtype)


def _state_of_operand(g: GraphContext, seed: Value) -> State:
    """The state that TensorFlow derives from a seed of two numbers."""
    numbers = constant_integers(g, seed, "seed")
    if len(numbers) != 2:
        raise g.refuse(f"'seed' must have two numbers, not {len(numbers)}")
    # TensorFlow scrambles the seed, so that seeds that differ in few bits give unrelated numbers.
    counter = (numbers[0] % 2**64) | (numbers[1] % 2**64) << 64
    mixed = [int(word) for word in _philox((_SCRAMBLING_KEY[0] | _SCRAMBLING_KEY[1] << 32, counter), 1)]
    return mixed[0] | mixed[1] << 32, mixed[2] << 64 | mixed[3] << 96


def _state_of_key(g: GraphContext, key: Value, counter: Value, alg: Value) -> State:
    if constant_integers(g, alg, "alg")[0] not in (_PHILOX, _AUTOMATIC):
        raise g.refuse("generators other than Philox are not supported")
    key_numbers, counters = constant_integers(g, key, "key"), constant_integers(g, counter, "counter")
    return key_numbers[0], counters[0] | counters[1] << 64


@onnx_symbolic("tf::StatelessRandomGetAlg")
def stateless_random_get_alg(g: GraphContext) -> Value:
    return g.constant(_PHILOX, DataType.INT32)


@onnx_symbolic("tf::StatelessRandomGetKeyCounter")
def stateless_random_get_key_counter(g: GraphContext, seed: Value) -> list[Value]:
    key, counter = _state_of_operand(g, seed)
    counters = np.array([counter & 2**64 - 1, counter >> 64], np.uint64)
    return [g.constant(np.array([key], np.uint64)), g.constant(counters)]


@onnx_symbolic("tf::StatelessRandomGetKeyCounterAlg")
def stateless_random_get_key_counter_alg(g: GraphContext, seed: Value) -> list[Value]:
    return [*stateless_random_get_key_counter(g, seed), stateless_random_get_alg(g)]


def _register(
    name: str, distribution: Callable[[np.ndarray, DataType], np.ndarray], function: str | None = None
) -> None:
    """Register the operators of a distribution.

    Args:
        function: the symbolic function that draws from ONNX's generators.
    """

    def draw_others(g: GraphContext, dtype: DataType) -> Callable[[list[Size]], Value] | None:
        return None if function is None else lambda sizes: g.call(function, sizes, dtype)

    @onnx_symbolic(f"tf::StatelessRandom{name}")
    def draw(g: GraphContext, shape: Value, seed: Value, dtype: DataType = DataType.FLOAT) -> Value:
        state = _state_of_operand(g, seed)
        others = draw_others(g, dtype)
        return _draw(g, state, shape, dtype, lambda words: distribution(words, dtype), others)

    @onnx_symbolic(f"tf::StatelessRandom{name}V2")
    def draw_v2(
        g: GraphContext,
        shape: Value,
        key: Value,
        counter: Value,
        alg: Value,
        dtype: DataType = DataType.FLOAT,
    ) -> Value:
        state = _state_of_key(g, key, counter, alg)
        others = draw_others(g, dtype)
        return _draw(g, state, shape, dtype, lambda words: distribution(words, dtype), others)


_register("Uniform", _uniform, "composed::uniform")
_register("Normal", _normal, "composed::normal")


def _integers(words: np.ndarray, dtype: DataType) -> np.ndarray:
    bits = _wide(words) if _words_per_number(dtype) == 2 else words.astype(np.uint32)
    return bits.view(dtype.numpy())


_register("UniformFullInt", _integers)


def _draw_in_range(g: GraphContext, state: State, shape: Value, minval: Value, maxval: Value) -> Value:
    dtype = g.dtype(minval) or DataType.INT32
    low, high = constant_integers(g, minval, "minval")[0], constant_integers(g, maxval, "maxval")[0]
    if high <= low:
        raise g.refuse("'maxval' must be above 'minval'")

    def convert(words: np.ndarray) -> np.ndarray:
        bits = _wide(words) if _words_per_number(dtype) == 2 else words
        numbers: np.ndarray = (bits % np.uint64(high - low)).astype(np.int64) + low
        return numbers

    def draw_others(sizes: list[Size]) -> Value:
        return g.call("composed::random_integers", sizes, dtype, low, high)

    return _draw(g, state, shape, dtype, convert, draw_others)


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

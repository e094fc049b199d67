"""Random numbers: ONNX's generators, which draw other numbers from the same distribution.

Stateless operators return the same numbers for the same seed, which no ONNX operator does: see
`stateless_random`.
"""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from .._common import constant_integer, known_elements, number, set_shape

_TAIL_PROBABILITY = 0.022750131948179195
"""The probability that a standard normal number is less than -2."""


@onnx_symbolic("tf::RandomUniform")
def random_uniform(g: GraphContext, shape: Value, dtype: DataType, seed: int = 0, seed2: int = 0) -> Value:
    """Uniform numbers from 0 to below 1."""
    return g.call("composed::uniform", known_elements(g, shape), dtype)


@onnx_symbolic("tf::RandomStandardNormal")
def random_standard_normal(
    g: GraphContext, shape: Value, dtype: DataType, seed: int = 0, seed2: int = 0
) -> Value:
    return g.call("composed::normal", known_elements(g, shape), dtype)


@onnx_symbolic("tf::TruncatedNormal")
def truncated_normal(g: GraphContext, shape: Value, dtype: DataType, seed: int = 0, seed2: int = 0) -> Value:
    """Normal numbers within two standard deviations, by the inverse of their distribution."""
    # The inverse distribution is steep at its ends, where half precision is too coarse.
    compute_dtype = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    unit = g.call(
        "composed::uniform", known_elements(g, shape), compute_dtype, _TAIL_PROBABILITY, 1 - _TAIL_PROBABILITY
    )
    return g.cast(g.call("aten::special_ndtri", unit), dtype)


@onnx_symbolic("tf::RandomUniformInt")
def random_uniform_int(
    g: GraphContext, shape: Value, minval: Value, maxval: Value, seed: int = 0, seed2: int = 0
) -> Value:
    dtype = g.dtype(minval) or DataType.INT32
    low, high = number(g, minval), number(g, maxval)
    return g.call("composed::random_integers", known_elements(g, shape), dtype, low, high)


@onnx_symbolic("tf::RandomShuffle")
def random_shuffle(g: GraphContext, value: Value, seed: int = 0, seed2: int = 0) -> Value:
    order = g.call("aten::randperm", g.size(value, 0))
    return set_shape(g.op("Gather", value, order, axis=0), g.shape(value))


@onnx_symbolic("tf::Multinomial")
def multinomial(
    g: GraphContext,
    logits: Value,
    num_samples: Value,
    seed: int = 0,
    seed2: int = 0,
    output_dtype: DataType = DataType.INT64,
) -> Value:
    count = constant_integer(g, num_samples, "num_samples")
    rows = g.cast(logits, DataType.FLOAT)
    samples = g.op("Multinomial", rows, dtype=int(DataType.INT32), sample_size=count)
    samples = set_shape(samples, [None, count])
    return g.cast(samples, output_dtype)

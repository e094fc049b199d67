"""Random numbers: ONNX's generators, and distributions computed from uniform or normal numbers.

Without a seed, ONNX's numbers differ from run to run, and so from torch's. onnxruntime has no kernels for the
generators of opset 22. Formulas: ATen's TransformationHelper.h.
"""

import math
from typing import Any

import onnx_ir as ir

from ....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, fold_size, known_rank, sizes_of

_MANTISSA = {DataType.FLOAT16: 11, DataType.BFLOAT16: 8}
_SMALLEST = 2.0**-24
"""A number below the smallest positive uniform number; it avoids the logarithm of 0."""


def _generate(g: GraphContext, op_type: str, sizes: list[Size], dtype: DataType, **parameters: Any) -> Value:
    """Numbers of a generator, in a type that it supports: DOUBLE or FLOAT."""
    generated_dtype = DataType.DOUBLE if dtype == DataType.DOUBLE else DataType.FLOAT
    sizes = [fold_size(g, size) for size in sizes]
    if any(isinstance(size, Value) for size in sizes) or not sizes or 0 in sizes:
        # RandomUniform takes only constant sizes; RandomUniformLike takes those of a tensor.
        shaped = g.call("composed::full", size=sizes or [1], fill_value=0, dtype=generated_dtype)
        result = g.op(f"{op_type}Like", shaped, dtype=int(generated_dtype), **parameters)
        result.shape = shaped.shape
        return result if sizes else g.op("Reshape", result, g.constant([], DataType.INT64))
    result = g.op(op_type, outputs=1, shape=sizes, dtype=int(generated_dtype), **parameters)
    result.shape = ir.Shape([size for size in sizes if isinstance(size, int)])
    return result


@onnx_symbolic("composed::uniform")
def uniform_numbers(
    g: GraphContext, size: list[int | Value], dtype: DataType, low: float = 0.0, high: float = 1.0
) -> Value:
    """Uniform numbers from `low` to below `high`; half precision rounds down, to exclude `high`."""
    if dtype not in _MANTISSA:
        return _generate(g, "RandomUniform", size, dtype, low=low, high=high)
    steps = 2.0 ** _MANTISSA[dtype]
    steps_taken = g.op("Floor", _generate(g, "RandomUniform", size, DataType.FLOAT, low=0.0, high=steps))
    return g.cast(g.op("Add", g.op("Mul", steps_taken, (high - low) / steps), low), dtype)


@onnx_symbolic("composed::normal")
def normal_numbers(
    g: GraphContext, size: list[int | Value], dtype: DataType, mean: float = 0.0, scale: float = 1.0
) -> Value:
    return g.cast(_generate(g, "RandomNormal", size, dtype, mean=mean, scale=scale), dtype)


@onnx_symbolic("composed::random_integers")
def random_integers(
    g: GraphContext, size: list[int | Value], dtype: DataType, low: int | Value, high: int | Value
) -> Value:
    """Integers from `low` to `high - 1`, equally likely within the precision of DOUBLE."""
    unit = _generate(g, "RandomUniform", size, DataType.DOUBLE, low=0.0, high=1.0)
    span = g.call("sym::sub", a=high, b=low)
    spread = g.op("Floor", g.op("Mul", unit, g.constant(span, DataType.DOUBLE)))
    integers = g.cast(spread, DataType.INT64)
    last = g.constant(g.call("sym::sub", a=span, b=1), DataType.INT64)
    # A uniform number just below 1 may be rounded up to the span.
    integers = g.op("Where", g.op("Greater", integers, last), last, integers)
    return g.cast(g.op("Add", integers, g.constant(low, DataType.INT64)), dtype)


def _exponential(g: GraphContext, size: list[Size], dtype: DataType) -> Value:
    """Exponentially distributed numbers with rate 1."""
    unit = g.call("composed::uniform", size, dtype if dtype == DataType.DOUBLE else DataType.FLOAT)
    return g.op("Neg", g.op("Log", g.op("Add", g.op("Sub", 1.0, unit), _SMALLEST * _SMALLEST)))


def _declared_dtype(g: GraphContext, dtype: DataType | None) -> DataType:
    """The requested element type, else that of the source node's output."""
    expected = g.expected[0].dtype if g.expected else None
    return dtype or expected or DataType.FLOAT


def _register_sized(name: str, function: str) -> None:
    @onnx_symbolic(f"aten::{name}")
    def of_size(g: GraphContext, size: list[int | Value], dtype: DataType | None = None) -> Value:
        return g.call(function, size, _declared_dtype(g, dtype))

    @onnx_symbolic(f"aten::{name}_like")
    def like(g: GraphContext, self: Value, dtype: DataType | None = None) -> Value:
        return g.call(function, sizes_of(g, self), dtype or g.dtype(self) or DataType.FLOAT)


_register_sized("rand", "composed::uniform")
_register_sized("randn", "composed::normal")


@onnx_symbolic("aten::randint")
def randint(
    g: GraphContext,
    high: int | Value,
    size: list[int | Value],
    low: int | Value = 0,
    dtype: DataType | None = None,
) -> Value:
    return g.call("composed::random_integers", size, dtype or DataType.INT64, low, high)


@onnx_symbolic("aten::randint_like")
def randint_like(
    g: GraphContext, self: Value, high: int | Value, low: int | Value = 0, dtype: DataType | None = None
) -> Value:
    dtype = dtype or g.dtype(self) or DataType.FLOAT
    return g.call("composed::random_integers", sizes_of(g, self), dtype, low, high)


@onnx_symbolic("aten::randperm")
def randperm(g: GraphContext, n: int | Value, dtype: DataType | None = None) -> Value:
    """A random permutation: the sort order of random numbers."""
    keys = _generate(g, "RandomUniform", [n], DataType.FLOAT, low=0.0, high=1.0)
    return g.cast(g.call("aten::argsort", keys, 0), dtype or DataType.INT64)


@onnx_symbolic("aten::normal")
def normal(
    g: GraphContext,
    mean: Value | Number,
    std: Value | Number = 1.0,
    size: list[int | Value] | None = None,
    dtype: DataType | None = None,
) -> Value:
    """Normal numbers; mean and standard deviation are numbers or tensors."""
    tensors = [argument for argument in (mean, std) if isinstance(argument, Value)]
    result_dtype = g.dtype(tensors[0]) or DataType.FLOAT if tensors else _declared_dtype(g, dtype)
    if not tensors:
        if size is None:
            raise g.refuse("the size must be given")
        return g.call("composed::normal", size, result_dtype, float(mean), float(std))  # type: ignore[arg-type]
    shaped = g.call_outputs("aten::broadcast_tensors", tensors=tensors)[0]
    unit = g.call("composed::normal", sizes_of(g, shaped), result_dtype)
    return g.op("Add", g.op("Mul", unit, g.constant(std, result_dtype)), g.constant(mean, result_dtype))


@onnx_symbolic("aten::normal_functional")
def normal_functional(g: GraphContext, self: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    return g.call("composed::normal", sizes_of(g, self), g.dtype(self) or DataType.FLOAT, mean, std)


def _real(g: GraphContext, self: Value) -> DataType:
    """The element type to compute random numbers in, for a result like this tensor."""
    return DataType.DOUBLE if g.dtype(self) == DataType.DOUBLE else DataType.FLOAT


@onnx_symbolic("aten::uniform")
def uniform(g: GraphContext, self: Value, from_: float = 0.0, to: float = 1.0) -> Value:
    return g.call("composed::uniform", sizes_of(g, self), g.dtype(self) or DataType.FLOAT, from_, to)


@onnx_symbolic("aten::exponential")
def exponential(g: GraphContext, self: Value, lambd: float = 1.0) -> Value:
    numbers = g.op("Div", _exponential(g, sizes_of(g, self), _real(g, self)), lambd)
    return g.cast(numbers, g.dtype(self) or DataType.FLOAT)


@onnx_symbolic("aten::geometric")
def geometric(g: GraphContext, self: Value, p: float) -> Value:
    """The number of trials until the first success."""
    numbers = _exponential(g, sizes_of(g, self), _real(g, self))
    count = g.op("Ceil", g.op("Div", numbers, -math.log1p(-p))) if p < 1 else g.op("Mul", numbers, 0.0)
    at_least_one = g.call("aten::clamp_min", count, 1)
    return g.cast(at_least_one, g.dtype(self) or DataType.FLOAT)


@onnx_symbolic("aten::log_normal")
def log_normal(g: GraphContext, self: Value, mean: float = 1.0, std: float = 2.0) -> Value:
    numbers = g.call("composed::normal", sizes_of(g, self), _real(g, self), mean, std)
    return g.cast(g.op("Exp", numbers), g.dtype(self) or DataType.FLOAT)


@onnx_symbolic("aten::cauchy")
def cauchy(g: GraphContext, self: Value, median: float = 0.0, sigma: float = 1.0) -> Value:
    unit = g.call("composed::uniform", sizes_of(g, self), _real(g, self))
    spread = g.op("Tan", g.op("Mul", g.op("Sub", unit, 0.5), math.pi))
    return g.cast(g.op("Add", g.op("Mul", spread, sigma), median), g.dtype(self) or DataType.FLOAT)


@onnx_symbolic("aten::bernoulli")
def bernoulli(g: GraphContext, self: Value, p: Value | float | None = None) -> Value:
    """1 with the probability given by each element, or by `p`; else 0."""
    dtype = g.dtype(self) or DataType.FLOAT
    probability = self if p is None else p
    real = _real(g, probability) if isinstance(probability, Value) else DataType.FLOAT
    unit = g.call("composed::uniform", sizes_of(g, self), real)
    return g.cast(g.op("Less", unit, g.constant(probability, real)), dtype)


@onnx_symbolic("aten::multinomial")
def multinomial(g: GraphContext, self: Value, num_samples: int | Value, replacement: bool = False) -> Value:
    """Multinomial; without replacement, the largest weights divided by exponential numbers, as in ATen."""
    weights = g.cast(self, _real(g, self))
    count = fold_size(g, num_samples)
    if replacement or (isinstance(count, int) and count == 1):
        if isinstance(count, Value):
            raise g.refuse("the number of samples with replacement must be constant")
        rows = g.op("Unsqueeze", weights, axes=[0]) if known_rank(g, self) == 1 else weights
        # Multinomial takes the logarithms of unnormalized probabilities.
        logits = g.cast(g.op("Log", rows), DataType.FLOAT)
        drawn = g.op("Multinomial", logits, dtype=int(DataType.INT64), sample_size=count)
        return g.op("Squeeze", drawn, axes=[0]) if known_rank(g, self) == 1 else drawn
    keys = g.op("Div", weights, _exponential(g, sizes_of(g, self), _real(g, self)))
    drawn = g.call_outputs("aten::topk", keys, count, -1)[1]
    drawn.shape = ir.Shape([None] * known_rank(g, keys))
    return drawn


@onnx_symbolic("composed::kept")
def keep_mask(g: GraphContext, size: list[int | Value], dtype: DataType, p: float) -> Value:
    """1 with the probability `1 - p`, else 0."""
    unit = g.call("composed::uniform", size, DataType.FLOAT)
    return g.cast(g.op("Not", g.op("Less", unit, p)), dtype)

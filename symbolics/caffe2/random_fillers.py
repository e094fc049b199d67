"""Fillers of a predict_net: random numbers, which are drawn in each run as in Caffe2, and diagonals.

Semantics: caffe2/operators/filler_op.h.
"""

from collections.abc import Sequence

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import Size, compute, product, sizes_of


def _sizes(
    g: GraphContext, input: Value | None, shape: Sequence[int], extra_shape: Sequence[int], as_shape: int
) -> list[int | Value]:
    """The sizes of the result: those of the input, its elements, or the argument."""
    if input is None:
        return list(shape)
    if not as_shape:
        return [*sizes_of(g, input), *extra_shape]
    count = g.size(input, 0)
    if not isinstance(count, int):
        raise g.refuse("the number of sizes in its input is unknown")
    numbers = g.cast(input, DataType.INT64)
    return [*(g.op("Gather", numbers, index, axis=0) for index in range(count)), *extra_shape]


@onnx_symbolic("caffe2::UniformFill")
def uniform_fill(
    g: GraphContext,
    input: Value | None = None,
    lower: Value | None = None,
    upper: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    min: float | int = 0,
    max: float | int = 1,
) -> Value:
    if lower is not None or upper is not None:
        raise g.refuse("bounds that are inputs are not supported")
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::uniform", sizes, DataType.FLOAT, float(min), float(max))


@onnx_symbolic("caffe2::GaussianFill")
def gaussian_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    mean: float | int = 0,
    std: float | int = 1,
) -> Value:
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::normal", sizes, DataType.FLOAT, float(mean), float(std))


def _fan(g: GraphContext, sizes: Sequence[int | Value], dim: int) -> Value:
    """The number of elements divided by one size, FLOAT; the number of inputs or outputs of a layer."""
    if len(sizes) <= dim:
        raise g.refuse(f"the result needs {dim + 1} dimensions or more")
    factors = [size for axis, size in enumerate(sizes) if axis != dim]
    return g.cast(g.constant(product(g, factors)), DataType.FLOAT)


@onnx_symbolic("caffe2::XavierFill")
def xavier_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
) -> Value:
    """Uniform numbers between plus and minus the square root of 3 by the fan-in."""
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    bound = g.op("Sqrt", g.op("Div", g.constant(3.0, DataType.FLOAT), _fan(g, sizes, 0)))
    return g.op("Mul", g.call("composed::uniform", sizes, DataType.FLOAT, -1.0, 1.0), bound)


@onnx_symbolic("caffe2::MSRAFill")
def msra_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
) -> Value:
    """Normal numbers whose variance is 2 by the fan-out."""
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    deviation = g.op("Sqrt", g.op("Div", g.constant(2.0, DataType.FLOAT), _fan(g, sizes, 1)))
    return g.op("Mul", g.call("composed::normal", sizes, DataType.FLOAT, 0.0, 1.0), deviation)


@onnx_symbolic("caffe2::DiagonalFill")
def diagonal_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    value: float | int = 0,
    dtype: DataType = DataType.FLOAT,
) -> Value:
    """The value on the diagonal, and 0 elsewhere; in a tall matrix the diagonal begins again below."""
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    if len(sizes) < 2:
        raise g.refuse("the result needs 2 dimensions or more")
    if len(sizes) > 2 and len({size for size in sizes if isinstance(size, int)}) > 1:
        raise g.refuse("all dimensions of a result with more than 2 must be equal")
    step: Size = 1
    for axis in range(1, len(sizes)):
        step = compute(g, "add", step, product(g, sizes[axis:]))
    positions = g.constant(g.call("sym::range", start=0, end=product(g, sizes)))
    is_diagonal = g.call("aten::eq", g.call("aten::remainder", positions, g.constant(step)), 0)
    operands = g.constant(value, dtype), g.constant(0, dtype)
    flat = g.call("composed::where", condition=is_diagonal, self=operands[0], other=operands[1])
    return g.op("Reshape", flat, g.stack(sizes))


@onnx_symbolic("caffe2::UniformIntFill")
def uniform_int_fill(
    g: GraphContext,
    input: Value | None = None,
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    min: int = 0,
    max: int = 1,
) -> Value:
    """Integers up to `max`, which may be drawn, too."""
    sizes = _sizes(g, input, shape, extra_shape, input_as_shape)
    return g.call("composed::random_integers", sizes, DataType.INT32, min, max + 1)

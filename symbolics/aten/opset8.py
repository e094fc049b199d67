"""What changes meaning or reach at opset 8."""

import numpy as np

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ..compositions.integers import element
from ..compositions.sizes import known_rank


@onnx_symbolic("aten::sign", opset=8)
def sign(g: GraphContext, self: Value) -> Value:
    """Below 9: as the difference of two comparisons."""
    dtype = int(g.dtype(self) or DataType.FLOAT)
    positive = g.op("Cast", g.op("Greater", self, 0), to=dtype)
    return g.op("Sub", positive, g.op("Cast", g.op("Less", self, 0), to=dtype))


@onnx_symbolic("aten::isnan", opset=8)
def isnan(g: GraphContext, self: Value) -> Value:
    """Below 9: what is neither below 1 nor above 0."""
    return g.op("Not", g.op("Or", g.op("Less", self, 1), g.op("Greater", self, 0)))


@onnx_symbolic("composed::element_positions", opset=8)
def element_positions(g: GraphContext, index: Value, size: int | Value) -> Value:
    """Below 9, where INT64 has no remainder: that of truncating division, then from either end."""
    if isinstance(size, int) and size == 0:
        return index
    taken = g.op("Mul", g.op("Div", index, size), size)
    return g.call("composed::wrap", index=g.op("Sub", index, taken), size=size)


@onnx_symbolic("aten::one_hot", opset=8)
def one_hot(g: GraphContext, self: Value, num_classes: int | Value = -1) -> Value:
    """Below 9: whether each element equals each class."""
    if isinstance(num_classes, int) and num_classes < 0:
        raise g.refuse("the number of classes depends on the data: give num_classes")
    classes = g.call("sym::range", start=0, end=num_classes)
    return g.cast(g.op("Equal", g.op("Unsqueeze", self, axes=[known_rank(g, self)]), classes), DataType.INT64)


# The rational approximation of erf on [-4, 4] that Eigen and XLA compute in float32: x P(x^2) / Q(x^2).
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def _polynomial(g: GraphContext, variable: Value, coefficients: tuple[float, ...]) -> Value:
    result = g.op("Add", g.op("Mul", variable, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        result = g.op("Add", g.op("Mul", result, variable), coefficient)
    return result


@onnx_symbolic("aten::erf", opset=8)
def erf(g: GraphContext, self: Value) -> Value:
    """Below 9: a rational function, to the accuracy of FLOAT. FLOAT16 does not hold its coefficients."""
    if g.dtype(self) == DataType.DOUBLE:
        return g.call("composed::erf_of_double", self)
    if g.dtype(self) == DataType.FLOAT16:
        return g.cast(g.call("aten::erf", g.cast(self, DataType.FLOAT)), DataType.FLOAT16)
    x = g.op("Clip", self, min=-4.0, max=4.0)
    square = g.op("Mul", x, x)
    return g.op("Div", g.op("Mul", x, _polynomial(g, square, _ERF_P)), _polynomial(g, square, _ERF_Q))


@onnx_symbolic("composed::full", opset=8)
def full(g: GraphContext, size: list[int | Value], fill_value: Value | Number, dtype: DataType) -> Value:
    """Below 9: constants, and for computed sizes or numbers one element that is repeated."""
    if isinstance(fill_value, Value):
        one = g.op("Reshape", g.cast(fill_value, dtype), [1] * len(size))
        return g.op("Tile", one, size) if size else one
    known = [item for item in size if not isinstance(item, Value)]
    if len(known) == len(size):
        g.reserve(*known)
        return g.constant(np.full(known, element(g, fill_value, dtype)))
    return g.op("Tile", g.constant(np.full([1] * len(size), element(g, fill_value, dtype))), size)


@onnx_symbolic("packed::resized", opset=8)
def resized(g: GraphContext, self: Value, count: int | Value) -> Value:
    """Below 9, where integers are not compared: lengthened by the whole size, then cut."""
    first = g.op("Slice", self, starts=[0], ends=[1], axes=[0])
    added = g.op("Tile", first, [count, *[1] * (known_rank(g, self) - 1)])
    return g.call("packed::head", self=g.op("Concat", self, added, axis=0), count=g.constant(count))


@onnx_symbolic("packed::mask", opset=8)
def mask(g: GraphContext, lengths: Value, count: int | Value) -> Value:
    """Below 9: Less takes floats only."""
    steps = g.cast(g.call("packed::positions", count=count), DataType.DOUBLE)
    ends = g.cast(lengths, DataType.DOUBLE)
    return g.op("Less", g.op("Unsqueeze", steps, axes=[1]), g.op("Unsqueeze", ends, axes=[0]))


@onnx_symbolic("packed::chosen", opset=8)
def chosen(g: GraphContext, mask: Value, self: Value, other: Value | Number) -> Value:
    """Below 9: no Where; finite numbers are weighted by 1 and 0."""
    dtype = g.dtype(self) or DataType.FLOAT
    kept = g.op("Mul", self, g.cast(mask, dtype))
    if not isinstance(other, Value) and other == 0:
        return kept
    rest = g.op("Mul", g.cast(g.op("Not", mask), dtype), g.constant(other, dtype))
    return g.op("Add", kept, rest)

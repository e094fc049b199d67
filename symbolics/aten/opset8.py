"""What changes meaning or reach at opset 8."""

import numpy as np

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic


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
    """Below 9: a rational function, to the accuracy of FLOAT."""
    if g.dtype(self) == DataType.DOUBLE:
        raise g.refuse("erf of DOUBLE needs the operator Erf", first_opset=9)
    x = g.op("Clip", self, min=-4.0, max=4.0)
    square = g.op("Mul", x, x)
    return g.op("Div", g.op("Mul", x, _polynomial(g, square, _ERF_P)), _polynomial(g, square, _ERF_Q))


@onnx_symbolic("composed::full", opset=8)
def full(g: GraphContext, size: list[int | Value], fill_value: Number, dtype: DataType) -> Value:
    """Below 9: constants, and for computed sizes one element that is repeated."""
    known = [item for item in size if not isinstance(item, Value)]
    if len(known) == len(size):
        return g.constant(np.full(known, fill_value, dtype=dtype.numpy()))
    return g.op("Tile", g.constant(np.full([1] * len(size), fill_value), dtype), size)

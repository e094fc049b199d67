"""Operators that prepare the features of ranking models."""

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.operator_tables import register_functions
from ._layouts import set_shape_like
from .matrix_products import as_matrix

_LEAST_BOX_COX = 1e-6

register_functions("caffe2", "X", {"Log1p": lambda g, X: g.call("aten::log1p", self=X)})


@onnx_symbolic("caffe2::Logit")
def logit(g: GraphContext, X: Value, eps: float = 1e-6) -> Value:
    return g.call("aten::logit", self=X, eps=eps)


@onnx_symbolic("caffe2::Mod")
def mod(g: GraphContext, DATA: Value, divisor: int = 0, sign_follow_divisor: int = 0) -> Value:
    """The remainder has the sign of the data, as in C++, unless `sign_follow_divisor` is set."""
    if divisor < 1:
        raise g.refuse(f"its divisor must be at least 1, not {divisor}")
    function = "aten::remainder" if sign_follow_divisor else "aten::fmod"
    return g.call(function, self=DATA, other=divisor)


@onnx_symbolic("caffe2::ReplaceNaN")
def replace_nan(g: GraphContext, input: Value, value: float = 0.0) -> Value:
    # Only NaN differs from itself, and opsets before 9 have no IsNaN.
    is_number = g.op("Equal", input, input)
    filler = g.constant(value, g.dtype(input) or DataType.FLOAT)
    return g.call("composed::where", condition=is_number, self=input, other=filler)


@onnx_symbolic("caffe2::Bucketize")
def bucketize(g: GraphContext, X: Value, boundaries: list[float]) -> Value:
    """The index i with `boundaries[i - 1] < x <= boundaries[i]`."""
    limits = g.constant(boundaries, DataType.FLOAT)
    return g.call("aten::bucketize", self=X, boundaries=limits, out_int32=True, right=False)


@onnx_symbolic("caffe2::BatchBoxCox")
def batch_box_cox(g: GraphContext, data: Value, lambda1: Value, lambda2: Value) -> Value:
    """`(x ** lambda1 - 1) / lambda1` of the shifted data, or their logarithm for a `lambda1` of 0."""
    rows = as_matrix(g, data, 1)
    powers, shifts = (g.op("Reshape", operand, [-1]) for operand in (lambda1, lambda2))
    shifted = g.op("Max", g.op("Add", rows, shifts), _LEAST_BOX_COX)
    is_zero = g.op("Equal", powers, 0.0)
    # The quotient for a power of 0 would be NaN, and is not selected.
    divisors = g.call("composed::where", condition=is_zero, self=g.constant(1.0, g.dtype(data)), other=powers)
    powered = g.op("Div", g.op("Sub", g.op("Pow", shifted, powers), 1.0), divisors)
    result = g.call("composed::where", condition=is_zero, self=g.op("Log", shifted), other=powered)
    return set_shape_like(g.op("Reshape", result, g.op("Shape", data)), data)


@onnx_symbolic("caffe2::ElementwiseLinear")
def elementwise_linear(g: GraphContext, X: Value, w: Value, b: Value, axis: int = 1) -> Value:
    rows = as_matrix(g, X, axis)
    result = g.op("Add", g.op("Mul", rows, w), b)
    return set_shape_like(g.op("Reshape", result, g.op("Shape", X)), X)


@onnx_symbolic("caffe2::DotProduct")
def dot_product(g: GraphContext, X: Value, Y: Value) -> Value:
    """The dot product of each index of the first dimension."""
    product = g.op("Mul", as_matrix(g, X, 1), as_matrix(g, Y, 1))
    return g.op("ReduceSum", product, axes=[1], keepdims=0)


@onnx_symbolic("caffe2::LpNorm")
def lp_norm(g: GraphContext, X: Value, p: int = 2, average: int = 0) -> Value:
    """The sum, or the mean, of absolute values or of squares: Caffe2 takes no root."""
    if p not in (1, 2):
        raise g.refuse(f"its p must be 1 or 2, not {p}")
    elements = g.op("Reshape", X, [-1])
    powers = g.op("Abs", elements) if p == 1 else g.op("Mul", elements, elements)
    return g.op("ReduceMean" if average else "ReduceSum", powers, axes=[0], keepdims=1)

"""Matrix products, Einstein summation, cross products."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.einsum import parse_equation
from ...compositions.integers import widen_integers
from ...compositions.matrices import transpose
from ...compositions.size_arithmetic import known_rank
from .._common import restore_dtype, set_shape


def _product(g: GraphContext, x: Value, y: Value, dtype: DataType | None = None) -> Value:
    dtype = dtype or g.dtype(x)
    return restore_dtype(g, g.op("MatMul", widen_integers(g, x), widen_integers(g, y)), dtype)


@onnx_symbolic("tf::MatMul")
def matmul(
    g: GraphContext, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False
) -> Value:
    """The product of two matrices."""
    first = g.op("Transpose", a, perm=[1, 0]) if transpose_a else a
    second = g.op("Transpose", b, perm=[1, 0]) if transpose_b else b
    return _product(g, first, second)


@onnx_symbolic("tf::SparseMatMul")
def sparse_matmul(
    g: GraphContext,
    a: Value,
    b: Value,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
) -> Value:
    """The product of dense matrices, in FLOAT; the flags say that many elements are 0."""
    operands = (g.cast(operand, DataType.FLOAT) for operand in (a, b))
    return g.call("tf::MatMul", *operands, transpose_a, transpose_b)


@onnx_symbolic(["tf::BatchMatMul", "tf::BatchMatMulV2"])
def batch_matmul(g: GraphContext, x: Value, y: Value, adj_x: bool = False, adj_y: bool = False) -> Value:
    return _product(g, transpose(g, x) if adj_x else x, transpose(g, y) if adj_y else y)


@onnx_symbolic("tf::BatchMatMulV3")
def batch_matmul_v3(
    g: GraphContext, x: Value, y: Value, Tout: DataType, adj_x: bool = False, adj_y: bool = False
) -> Value:
    """The product in the element type of the result."""
    first, second = g.cast(x, Tout), g.cast(y, Tout)
    return _product(
        g, transpose(g, first) if adj_x else first, transpose(g, second) if adj_y else second, Tout
    )


@onnx_symbolic("tf::Einsum")
def einsum(g: GraphContext, inputs: list[Value], equation: str) -> Value:
    result = g.call("aten::einsum", equation=equation, tensors=inputs)
    ranks = [rank for rank in map(g.rank, inputs) if rank is not None]
    if len(ranks) < len(inputs):
        return result
    terms = parse_equation(g, equation, ranks)
    return set_shape(result, [None] * len(terms.output))


@onnx_symbolic("tf::Cross")
def cross(g: GraphContext, a: Value, b: Value) -> Value:
    """The cross product of the 3-vectors along the last dimension."""
    last = known_rank(g, a) - 1
    # Component k of the product is a[k+1] * b[k+2] - a[k+2] * b[k+1], indices modulo 3.
    x, y = (
        [g.op("Gather", value, [(index + shift) % 3 for index in range(3)], axis=last) for shift in (1, 2)]
        for value in (a, b)
    )
    return g.call("tf::Sub", g.call("tf::Mul", x[0], y[1]), g.call("tf::Mul", x[1], y[0]))

"""Matrix products and fully connected layers, which flatten tensors of any rank to matrices."""

import functools

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ...registration.size_algebra.dimensions import Dim, product
from ..compositions.matrices import transpose
from ..compositions.size_arithmetic import UNKNOWN, axis_from_front
from ._layouts import set_shape


def flatten_axis(g: GraphContext, value: Value, axis: int) -> int:
    """The axis at which a tensor is flattened to a matrix, which may be its rank."""
    return axis if axis >= 0 and axis == g.rank(value) else axis_from_front(g, value, axis)


def as_matrix(g: GraphContext, value: Value, axis: int) -> Value:
    """Flatten a tensor to a matrix: the dimensions before the axis, and those from the axis on."""
    axis = flatten_axis(g, value, axis)
    if g.rank(value) == 2 and axis == 1:
        return value
    return set_shape(g.op("Flatten", value, axis=axis), matrix_sizes(g, value, axis))


def matrix_sizes(g: GraphContext, value: Value, axis: int) -> list[Dim]:
    """The known sizes of a tensor flattened to a matrix."""
    shape = g.shape(value)
    if shape is None:
        return [UNKNOWN, UNKNOWN]
    unit: Dim = 1
    return [functools.reduce(product, sizes, unit) for sizes in (shape[:axis], shape[axis:])]


def _restore_rows(g: GraphContext, result: Value, X: Value, axis: int) -> Value:
    """Reshape the rows of a result to the dimensions of X before the axis."""
    axis = flatten_axis(g, X, axis)
    if axis == 1:
        return result
    # Without dimensions before the axis, X is a single row.
    if not axis:
        return g.op("Reshape", result, [-1])
    rows = g.op("Slice", g.op("Shape", X), starts=[0], ends=[axis], axes=[0])
    reshaped = g.op("Reshape", result, g.op("Concat", rows, g.constant([-1]), axis=0))
    shape, result_shape = g.shape(X), g.shape(result)
    if shape is not None:
        reshaped.shape = ir.Shape([*shape[:axis], result_shape[1] if result_shape is not None else UNKNOWN])
    return reshaped


def _register_fully_connected(name: str, transposed: int) -> None:
    def fully_connected(
        g: GraphContext, X: Value, W: Value, b: Value, axis: int = 1, axis_w: int = 1
    ) -> Value:
        product = g.op("Gemm", as_matrix(g, X, axis), as_matrix(g, W, axis_w), b, transB=transposed)
        return _restore_rows(g, product, X, axis)

    onnx_symbolic(f"caffe2::{name}")(fully_connected)


_register_fully_connected("FC", 1)
_register_fully_connected("FCTransposed", 0)
_register_fully_connected("FbFCPacked", 1)


@onnx_symbolic("caffe2::FbGemmPack")
def pack_weight(g: GraphContext, X: Value) -> Value:
    """The weight of `FbFCPacked`, rounded to half precision as FBGEMM stores it."""
    return g.cast(g.cast(X, DataType.FLOAT16), DataType.FLOAT)


@onnx_symbolic("caffe2::MatMul")
def matmul(
    g: GraphContext, A: Value, B: Value, axis_a: int = 1, axis_b: int = 1, trans_a: int = 0, trans_b: int = 0
) -> Value:
    a, b = as_matrix(g, A, axis_a), as_matrix(g, B, axis_b)
    if trans_a:
        a = g.op("Transpose", a, perm=[1, 0])
    if trans_b:
        b = g.op("Transpose", b, perm=[1, 0])
    return g.op("MatMul", a, b)


@onnx_symbolic("caffe2::BatchMatMul")
def batch_matmul(
    g: GraphContext, A: Value, B: Value, trans_a: int = 0, trans_b: int = 0, broadcast: int = 0
) -> Value:
    """With `broadcast` like numpy.matmul, except that the product of two vectors has the shape [1]."""
    vectors = (g.rank(A) == 1, g.rank(B) == 1)
    if trans_a and not vectors[0]:
        A = transpose(g, A)
    if trans_b and not vectors[1]:
        B = transpose(g, B)
    result: Value = g.op("MatMul", A, B)
    # The product of two vectors is a scalar in ONNX, and has one dimension in Caffe2.
    return g.op("Reshape", result, [1]) if all(vectors) else result

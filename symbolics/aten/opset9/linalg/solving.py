"""Linear systems, inverses and determinants, from the factors of a matrix.

Semantics: aten/src/ATen/native/BatchLinearAlgebra.cpp and LinearAlgebra.cpp.
"""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import compute, known_rank, product, same_size


@onnx_symbolic("composed::solve_triangular")
def composed_solve_triangular(g: GraphContext, A: Value, B: Value, upper: bool, unitriangular: bool) -> Value:
    """Solve `A X = B`, one row per step; batches broadcast. Only one triangle of A is read."""
    matrix = mx.triangle(g, A, upper, strict=True)
    pivots = mx.diagonal(g, A)
    count, dtype = mx.height(g, A), mx.dtype_of(g, B)
    last = compute(g, "sub", count, 1)

    def step(iteration: Value, solved: Value) -> list[Value]:
        # An upper triangle is solved from its last row upwards.
        index = g.op("Sub", g.constant(last), iteration) if upper else iteration
        solved_products = g.op("MatMul", mx.as_row(g, mx.row(g, matrix, index)), solved)
        values = g.op("Sub", mx.as_row(g, mx.row(g, B, index)), solved_products)
        if not unitriangular:
            values = g.op("Div", values, mx.as_row(g, mx.element(g, pivots, index)))
        is_current = mx.as_column(g, mx.unit(g, count, index))
        return [mx.where(g, is_current, values, solved)]

    return mx.run_loop(g, count, step, [_empty_solution(g, A, B, dtype)])[0]


def _empty_solution(g: GraphContext, A: Value, B: Value, dtype: DataType) -> Value:
    """Zeros with the shape of the solution of `A X = B`."""
    sizes = [*mx.batch_sizes(g, B), mx.height(g, B), mx.width(g, B)]
    result = mx.zeros(g, sizes, dtype)
    matrix_shape, right_shape = (g.shape(value) or () for value in (A, B))
    same_batch = len(matrix_shape) == len(right_shape) and all(
        same_size(a, b) for a, b in zip(matrix_shape[:-2], right_shape[:-2], strict=True)
    )
    # Otherwise the batches broadcast: adding zeros of the matrix's batch extends the solution.
    if len(matrix_shape) == 2 or same_batch:
        return result
    return g.op("Add", result, mx.zeros(g, [*mx.batch_sizes(g, A), 1, 1], dtype))


@onnx_symbolic("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    g: GraphContext, self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    # From the right: `X A = B` is `A^T X^T = B^T`.
    A, right = (self, B) if left else (mx.transpose(g, self), mx.transpose(g, B))
    result = g.call("composed::solve_triangular", A, right, upper == left, unitriangular)
    return result if left else mx.transpose(g, result)


@onnx_symbolic("aten::triangular_solve")
def triangular_solve(
    g: GraphContext,
    self: Value,
    A: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> list[Value]:
    """The solution and A, both with broadcast batch dimensions."""
    matrix = mx.transpose(g, A) if transpose else A
    result = g.call("composed::solve_triangular", matrix, self, upper != transpose, unitriangular)
    batch = mx.zeros(g, [*mx.batch_sizes(g, self), 1, 1], mx.dtype_of(g, A))
    return [result, g.op("Add", A, batch)]


@onnx_symbolic("aten::cholesky_solve")
def cholesky_solve(g: GraphContext, self: Value, input2: Value, upper: bool = False) -> Value:
    lower = mx.transpose(g, input2) if upper else input2
    half = g.call("composed::solve_triangular", lower, self, upper=False, unitriangular=False)
    return g.call("composed::solve_triangular", mx.transpose(g, lower), half, upper=True, unitriangular=False)


@onnx_symbolic("aten::cholesky_inverse")
def cholesky_inverse(g: GraphContext, self: Value, upper: bool = False) -> Value:
    """`(L L^T)^-1` is the inverse of L, transposed, times itself."""
    lower = mx.transpose(g, self) if upper else self
    size = mx.height(g, self)
    identity = mx.identities(g, self, size, size)
    inverse = g.call("composed::solve_triangular", lower, identity, upper=False, unitriangular=False)
    return g.op("MatMul", mx.transpose(g, inverse), inverse)


@onnx_symbolic("aten::linalg_lu_solve")
def linalg_lu_solve(
    g: GraphContext, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False
) -> Value:
    """A system from the right: `X A = B` is `A^T X^T = B^T`."""
    order = g.call("composed::row_order", pivots, mx.height(g, LU))
    right_side = B if left else mx.transpose(g, B)
    result = g.call("composed::lu_solve", LU, order, right_side, adjoint == left)
    return result if left else mx.transpose(g, result)


@onnx_symbolic("aten::lu_solve")
def lu_solve(g: GraphContext, self: Value, LU_data: Value, LU_pivots: Value) -> Value:
    return g.call("aten::linalg_lu_solve", LU_data, LU_pivots, self)


def _is_vector(g: GraphContext, A: Value, B: Value) -> bool:
    """Whether B is a batch of vectors: of rank 1, or with the sizes of A except the last."""
    matrix_shape, right_shape = g.shape(A) or (), g.shape(B) or ()
    if len(right_shape) == 1:
        return True
    return len(matrix_shape) - 1 == len(right_shape) and all(
        same_size(a, b) for a, b in zip(matrix_shape[:-1], right_shape, strict=True)
    )


@onnx_symbolic("aten::_linalg_solve_ex")
def _linalg_solve_ex(g: GraphContext, A: Value, B: Value, left: bool = True) -> list[Value]:
    """The solution, the factors and pivots of A, and the position of its first zero pivot."""
    is_vector = _is_vector(g, A, B)
    right_side = mx.as_column(g, B) if is_vector else B
    if not left:
        right_side = right_side if is_vector else mx.transpose(g, right_side)
    packed, pivots, order = g.call_outputs("composed::lu", A)
    result = g.call("composed::lu_solve", packed, order, right_side, not left)
    if is_vector:
        result = g.op("Squeeze", result, axes=[mx.matrix_rank(g, result) - 1])
    elif not left:
        result = mx.transpose(g, result)
    info = g.call("composed::singular_column", packed)
    return [result, packed, g.cast(pivots, DataType.INT32), info]


@onnx_symbolic("aten::linalg_solve_ex")
def linalg_solve_ex(g: GraphContext, A: Value, B: Value, left: bool = True) -> list[Value]:
    result, _, _, info = g.call_outputs("aten::_linalg_solve_ex", A, B, left)
    return [result, info]


@onnx_symbolic("aten::linalg_solve")
def linalg_solve(g: GraphContext, A: Value, B: Value, left: bool = True) -> Value:
    return g.call_outputs("aten::_linalg_solve_ex", A, B, left)[0]


@onnx_symbolic("aten::linalg_inv_ex")
def linalg_inv_ex(g: GraphContext, A: Value) -> list[Value]:
    size = mx.height(g, A)
    packed, _, order = g.call_outputs("composed::lu", A)
    inverse = g.call("composed::lu_solve", packed, order, mx.identities(g, A, size, size), adjoint=False)
    return [inverse, g.call("composed::singular_column", packed)]


@onnx_symbolic("aten::linalg_inv")
def linalg_inv(g: GraphContext, A: Value) -> Value:
    return g.call_outputs("aten::linalg_inv_ex", A)[0]


@onnx_symbolic("aten::inverse")
def inverse(g: GraphContext, self: Value) -> Value:
    return g.call_outputs("aten::linalg_inv_ex", self)[0]


def _parity(g: GraphContext, pivots: Value, dtype: DataType) -> Value:
    """-1 for each matrix whose rows were exchanged an odd number of times, else 1."""
    count = g.size(pivots, (g.rank(pivots) or 1) - 1)
    unmoved = g.op("Add", mx.positions(g, count), 1)
    is_moved = g.op("Not", g.op("Equal", pivots, unmoved))
    signs = g.op("Sub", 1.0, g.op("Mul", g.cast(is_moved, dtype), 2.0))
    return _product(g, signs)


def _product(g: GraphContext, value: Value) -> Value:
    return g.op("ReduceProd", value, axes=[(g.rank(value) or 1) - 1], keepdims=0)


@onnx_symbolic("aten::_linalg_slogdet")
def _linalg_slogdet(g: GraphContext, A: Value) -> list[Value]:
    """The sign, the logarithm of the absolute value, and the factors and pivots."""
    packed, pivots, _ = g.call_outputs("composed::lu", A)
    values, dtype = mx.diagonal(g, packed), mx.dtype_of(g, A)
    sign = g.op("Mul", _parity(g, pivots, dtype), _product(g, g.call("aten::sign", values)))
    size = mx.total(g, g.op("Log", g.op("Abs", values)))
    return [sign, size, packed, g.cast(pivots, DataType.INT32)]


@onnx_symbolic("aten::linalg_slogdet")
def linalg_slogdet(g: GraphContext, A: Value) -> list[Value]:
    return g.call_outputs("aten::_linalg_slogdet", A)[:2]


@onnx_symbolic("aten::slogdet")
def slogdet(g: GraphContext, self: Value) -> list[Value]:
    return g.call_outputs("aten::_linalg_slogdet", self)[:2]


@onnx_symbolic("aten::logdet")
def logdet(g: GraphContext, self: Value) -> Value:
    """NaN for a negative determinant."""
    sign, size = g.call_outputs("aten::linalg_slogdet", self)
    # The logarithm of the sign is 0, minus infinity or NaN, as torch's result is.
    return g.op("Add", g.op("Log", sign), size)


@onnx_symbolic("aten::_linalg_det")
def _linalg_det(g: GraphContext, A: Value) -> list[Value]:
    packed, pivots, _ = g.call_outputs("composed::lu", A)
    # U has the diagonal of the factors; L's is 1.
    determinant = g.op("Mul", _parity(g, pivots, mx.dtype_of(g, packed)), _product(g, mx.diagonal(g, packed)))
    return [determinant, packed, g.cast(pivots, DataType.INT32)]


@onnx_symbolic("aten::linalg_det")
def linalg_det(g: GraphContext, A: Value) -> Value:
    return g.op("Det", A) if g.has_kernel("Det", A) else g.call_outputs("aten::_linalg_det", A)[0]


@onnx_symbolic("aten::det")
def det(g: GraphContext, self: Value) -> Value:
    return g.call("aten::linalg_det", self)


@onnx_symbolic("aten::linalg_tensorinv")
def linalg_tensorinv(g: GraphContext, self: Value, ind: int = 2) -> Value:
    sizes = [g.size(self, dim) for dim in range(g.rank(self) or 0)]
    leading, trailing = sizes[:ind], sizes[ind:]
    matrix = _as_matrix(g, self, leading, trailing)
    return g.call("aten::reshape", self=linalg_inv(g, matrix), shape=[*trailing, *leading])


@onnx_symbolic("aten::linalg_tensorsolve")
def linalg_tensorsolve(g: GraphContext, self: Value, other: Value, dims: list[int] | None = None) -> Value:
    """The solution of `tensordot(A, X, X.ndim) = B`; first moves the given dims of A to its end."""
    rank = known_rank(g, self)
    if dims is not None:
        moved_dims = [dim % rank for dim in dims]
        self = g.op("Transpose", self, perm=[*(i for i in range(rank) if i not in moved_dims), *moved_dims])
    leading = [g.size(other, dim) for dim in range(g.rank(other) or 0)]
    trailing = [g.size(self, dim) for dim in range(len(leading), rank)]
    matrix = _as_matrix(g, self, leading, trailing)
    column = g.call("aten::reshape", self=other, shape=[product(g, leading), 1])
    return g.call("aten::reshape", self=linalg_solve(g, matrix, column), shape=trailing)


def _as_matrix(
    g: GraphContext, value: Value, rows: Sequence[int | Value], columns: Sequence[int | Value]
) -> Value:
    return g.call("aten::reshape", self=value, shape=[product(g, rows), product(g, columns)])

"""Inverses, determinants, linear systems, Cholesky factors, eigenvalues and singular values."""

import math

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.matrices import dtype_of, height, identity, is_zero, run_loop, transpose
from ...compositions.operator_tables import register_table
from ...compositions.size_arithmetic import known_rank
from .._common import set_shape

_ROOT_STEPS = 30
"""Steps of the iteration for square roots: a condition number of 1e12 takes 20, and 5 give all digits."""


@onnx_symbolic("tf::MatrixInverse")
def matrix_inverse(g: GraphContext, input: Value, adjoint: bool = False) -> Value:
    return g.call("aten::linalg_inv", transpose(g, input) if adjoint else input)


@onnx_symbolic("tf::MatrixDeterminant")
def matrix_determinant(g: GraphContext, input: Value) -> Value:
    shape = g.shape(input)
    return set_shape(g.call("aten::linalg_det", input), None if shape is None else shape[:-2])


@onnx_symbolic("tf::LogMatrixDeterminant")
def log_matrix_determinant(g: GraphContext, input: Value) -> list[Value]:
    return g.call_outputs("aten::linalg_slogdet", input)


register_table("tf", "input: Cholesky=aten::linalg_cholesky")


@onnx_symbolic("tf::Lu")
def lu(g: GraphContext, input: Value, output_idx_type: DataType = DataType.INT32) -> list[Value]:
    """The packed factors, and the row of the input at each row of their product."""
    packed, _, order = g.call_outputs("composed::lu", input)
    return [packed, g.cast(order, output_idx_type)]


@onnx_symbolic("tf::Qr")
def qr(g: GraphContext, input: Value, full_matrices: bool = False) -> list[Value]:
    """The signs of the factors are those of LAPACK, which TensorFlow's kernel has, too."""
    return g.call_outputs("aten::linalg_qr", input, "complete" if full_matrices else "reduced")


@onnx_symbolic("tf::MatrixSquareRoot")
def matrix_square_root(g: GraphContext, input: Value) -> Value:
    """The product form of the Denman-Beavers iteration, in DOUBLE; NaN if it does not converge.

    Source: N. Higham, Functions of Matrices, equations (6.29) and (6.35). It converges for invertible
    matrices without negative eigenvalues, which have no real square root.
    """
    dtype = dtype_of(g, input)
    matrix, axes = g.cast(input, DataType.DOUBLE), [known_rank(g, input) - 2, known_rank(g, input) - 1]
    size = height(g, matrix)
    unit_matrix = identity(g, size, size, DataType.DOUBLE)
    squares = g.op("ReduceSum", g.op("Mul", matrix, matrix), axes=axes, keepdims=1)
    # With a norm of 1 every eigenvalue is at most 1, and the iteration doubles small unit_matrix.
    norm = g.op("Sqrt", squares)
    norm = g.op("Add", norm, g.cast(is_zero(g, norm), DataType.DOUBLE))
    scaled = g.op("Div", matrix, norm)

    def step(iteration: Value, root: Value, product: Value) -> list[Value]:
        inverse = g.call("aten::linalg_inv", product)
        # (M + M^-1) / 4 + I / 2, and X (I + M^-1) / 2.
        mean = g.op("Mul", g.op("Add", product, inverse), 0.25)
        factor = g.op("Mul", g.op("Add", inverse, unit_matrix), 0.5)
        return [g.op("MatMul", root, factor), g.op("Add", mean, g.op("Mul", unit_matrix, 0.5))]

    root, _ = run_loop(g, _ROOT_STEPS, step, [scaled, scaled])
    error = g.op("Abs", g.op("Sub", g.op("MatMul", root, root), scaled))
    # A sum above the limit, or NaN, is not below it.
    is_root = g.op("Less", g.op("ReduceSum", error, axes=axes, keepdims=1), g.constant(1e-4, DataType.DOUBLE))
    root = g.op("Mul", root, g.op("Sqrt", norm))
    return g.cast(g.call("composed::where", condition=is_root, self=root, other=math.nan), dtype)


@onnx_symbolic("tf::MatrixSolve")
def matrix_solve(g: GraphContext, matrix: Value, rhs: Value, adjoint: bool = False) -> Value:
    return g.call("aten::linalg_solve", transpose(g, matrix) if adjoint else matrix, rhs)


@onnx_symbolic("tf::TridiagonalSolve")
def tridiagonal_solve(
    g: GraphContext,
    diagonals: Value,
    rhs: Value,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Value:
    """The diagonals [..., 3, M] are the upper, the main and the lower one; two corners are not read."""
    matrix = g.call("tf::MatrixDiagV3", diagonals, g.constant([-1, 1], DataType.INT32), align="LEFT_RIGHT")
    return g.call("aten::linalg_solve", matrix, rhs)


@onnx_symbolic("tf::TridiagonalMatMul")
def tridiagonal_matmul(
    g: GraphContext, superdiag: Value, maindiag: Value, subdiag: Value, rhs: Value
) -> Value:
    """The diagonals are rows [..., 1, M]; the last of the upper and the first of the lower are not read."""
    dim = known_rank(g, rhs) - 2
    zero = g.op("Mul", g.op("Slice", rhs, starts=[0], ends=[1], axes=[dim]), 0)
    after = g.op("Concat", g.op("Slice", rhs, starts=[1], ends=[2**31 - 1], axes=[dim]), zero, axis=dim)
    before = g.op("Concat", zero, g.op("Slice", rhs, starts=[0], ends=[-1], axes=[dim]), axis=dim)
    products = [
        g.op("Mul", transpose(g, diagonal), rows)
        for diagonal, rows in ((superdiag, after), (maindiag, rhs), (subdiag, before))
    ]
    return g.op("Add", g.op("Add", products[0], products[1]), products[2])


@onnx_symbolic("tf::BandedTriangularSolve")
def banded_triangular_solve(
    g: GraphContext, matrix: Value, rhs: Value, lower: bool = True, adjoint: bool = False
) -> Value:
    """The matrix [..., bands, M] has its diagonals in rows, that of the matrix itself first if lower."""
    bands = g.size(matrix, -2)
    if not isinstance(bands, int):
        raise g.refuse("the number of bands is unknown")
    diagonals = (1 - bands, 0) if lower else (0, bands - 1)
    dense = g.call("tf::MatrixDiagV3", matrix, g.constant([*diagonals], DataType.INT32), align="LEFT_RIGHT")
    return g.call("tf::MatrixTriangularSolve", dense, rhs, lower, adjoint)


@onnx_symbolic("tf::MatrixTriangularSolve")
def matrix_triangular_solve(
    g: GraphContext, matrix: Value, rhs: Value, lower: bool = True, adjoint: bool = False
) -> Value:
    """Only one triangle of the matrix is read."""
    system = transpose(g, matrix) if adjoint else matrix
    # The adjoint of a lower triangle is an upper one.
    return g.call("aten::linalg_solve_triangular", system, rhs, upper=lower == adjoint)


@onnx_symbolic("tf::SelfAdjointEigV2")
def self_adjoint_eig(g: GraphContext, input: Value, compute_v: bool = True) -> list[Value | None]:
    """Eigenvalues in ascending order, and eigenvectors up to their signs."""
    if not compute_v:
        return [g.call("aten::linalg_eigvalsh", input), None]
    values, vectors = g.call_outputs("aten::linalg_eigh", input)
    return [values, vectors]


@onnx_symbolic("tf::Svd")
def svd(
    g: GraphContext, input: Value, compute_uv: bool = True, full_matrices: bool = False
) -> list[Value | None]:
    """Singular values in descending order, and singular vectors up to their signs."""
    if not compute_uv:
        return [g.call("aten::linalg_svdvals", input), None, None]
    u, s, vh = g.call_outputs("aten::linalg_svd", input, full_matrices)
    return [s, u, transpose(g, vh)]

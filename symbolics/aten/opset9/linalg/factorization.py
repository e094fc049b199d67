"""Cholesky and LU factorisations by columns, with LAPACK's results.

Semantics: aten/src/ATen/native/BatchLinearAlgebra.cpp; potrf and getrf of LAPACK.
"""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import Size


@onnx_symbolic("composed::cholesky")
def composed_cholesky(g: GraphContext, self: Value, upper: bool) -> list[Value]:
    """The lower factor (for `upper` the upper one), and LAPACK's info, FLOAT `[...]`.

    If a matrix is not positive definite, its factor is NaN from the first failing column on.
    """
    matrix = mx.transpose(g, self) if upper else self
    size, dtype = mx.height(g, matrix), mx.dtype_of(g, matrix)

    def step(index: Value, factor: Value, remainder: Value, info: Value) -> list[Value]:
        values = mx.column(g, remainder, index)
        pivot = mx.element(g, values, index)
        is_from_pivot = g.op("Not", g.op("Less", mx.numbers(g, size), g.cast(index, DataType.FLOAT)))
        values = mx.where(g, is_from_pivot, g.op("Div", values, g.op("Sqrt", pivot)), 0)
        added = mx.outer(g, values, g.cast(mx.unit(g, size, index), dtype))
        remainder = g.op("Sub", remainder, mx.outer(g, values, values))
        failed = g.op("And", g.op("Not", g.op("Greater", mx.total(g, pivot), 0.0)), mx.is_zero(g, info))
        number = g.op("Add", g.cast(index, DataType.FLOAT), 1.0)
        info = g.op("Add", info, g.op("Mul", g.cast(failed, DataType.FLOAT), number))
        return [g.op("Add", factor, added), remainder, info]

    batch = mx.batch_sizes(g, matrix)
    initial = [mx.zeros(g, [*batch, size, size], dtype), matrix, mx.zeros(g, batch, DataType.FLOAT)]
    factor, _, info = mx.run_loop(g, size, step, initial)
    return [mx.transpose(g, factor) if upper else factor, info]


@onnx_symbolic(["aten::cholesky", "aten::linalg_cholesky"])
def cholesky(g: GraphContext, self: Value, upper: bool = False) -> Value:
    return g.call_outputs("composed::cholesky", self, upper)[0]


@onnx_symbolic("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(g: GraphContext, self: Value, upper: bool = False) -> list[Value]:
    factor, info = g.call_outputs("composed::cholesky", self, upper)
    return [factor, g.cast(info, DataType.INT32)]


@onnx_symbolic("composed::lu")
def composed_lu(g: GraphContext, self: Value) -> list[Value]:
    """Both factors in one matrix, LAPACK's pivots, and the original row at each place.

    Returns:
        `[..., m, n]`, INT64 `[..., min(m, n)]` from 1 on, INT64 `[..., m]`.
    """
    rows, columns = mx.height(g, self), mx.width(g, self)
    count, dtype = mx.shorter(g, self), mx.dtype_of(g, self)
    batch = mx.batch_sizes(g, self)

    def step(index: Value, matrix: Value, pivots: Value, order: Value) -> list[Value]:
        # The pivot is the largest entry of the column, of the rows that are not done yet.
        column = mx.column(g, matrix, index)
        is_candidate = g.op("Not", g.op("Less", mx.numbers(g, rows), g.cast(index, DataType.FLOAT)))
        sizes = mx.where(g, is_candidate, g.op("Abs", column), -1)
        pivot = g.cast(mx.first_largest(g, sizes, rows)[1], DataType.INT64)
        is_current = mx.unit(g, rows, index)
        is_pivot = g.op("Equal", mx.positions(g, rows), pivot)
        matrix = mx.exchange_rows(g, matrix, is_current, is_pivot, -2)
        order = mx.exchange_rows(g, order, is_current, is_pivot, -1)
        values, upper = mx.column(g, matrix, index), mx.row(g, matrix, index)
        divisor = mx.element(g, values, index)
        # A zero pivot has only zeros below it: dividing by 1 leaves them.
        divisor = g.op("Add", divisor, g.cast(mx.is_zero(g, divisor), dtype))
        below = mx.after(g, rows, index)
        factors = mx.where(g, below, g.op("Div", values, divisor), 0)
        upper = mx.where(g, mx.after(g, columns, index), upper, 0)
        matrix = g.op("Sub", matrix, mx.outer(g, factors, upper))
        is_factor = g.op("And", mx.as_column(g, below), mx.as_row(g, mx.unit(g, columns, index)))
        matrix = mx.where(g, is_factor, mx.as_column(g, factors), matrix)
        number = g.op("Mul", g.cast(mx.unit(g, count, index), DataType.INT64), g.op("Add", pivot, 1))
        return [matrix, g.op("Add", pivots, number), order]

    order = g.op("Add", mx.zeros(g, [*batch, 1], DataType.INT64), mx.positions(g, rows))
    return mx.run_loop(g, count, step, [self, mx.zeros(g, [*batch, count], DataType.INT64), order])


@onnx_symbolic("composed::row_order")
def row_order(g: GraphContext, pivots: Value, rows: int | Value) -> Value:
    """The original row at each place after LAPACK's exchanges, INT64 `[..., rows]`."""
    rank = g.rank(pivots)
    if rank is None:
        raise g.refuse("the rank of the pivots is unknown")
    batch = [g.size(pivots, dim) for dim in range(rank - 1)]

    def step(index: Value, order: Value) -> list[Value]:
        partner = g.op("Sub", g.cast(mx.element(g, pivots, index), DataType.INT64), 1)
        is_partner = g.op("Equal", mx.positions(g, rows), partner)
        return [mx.exchange_rows(g, order, mx.unit(g, rows, index), is_partner, -1)]

    order = g.op("Add", mx.zeros(g, [*batch, 1], DataType.INT64), mx.positions(g, rows))
    return mx.run_loop(g, g.size(pivots, rank - 1), step, [order])[0]


def _permutation(g: GraphContext, order: Value, rows: Size, dtype: DataType) -> Value:
    """The matrix P of `A = P L U`, from the original row at each place."""
    numbers = g.op("Unsqueeze", mx.positions(g, rows), axes=[1])
    return g.cast(g.op("Equal", mx.as_row(g, order), numbers), dtype)


def _factors(g: GraphContext, packed: Value) -> list[Value]:
    """Split the combined matrix into L `[..., m, k]`, with ones on its diagonal, and U `[..., k, n]`."""
    count = mx.shorter(g, packed)
    lower = mx.leading(g, mx.triangle(g, packed, upper=False, strict=True), count)
    unit_diagonal = mx.identity(g, mx.height(g, packed), count, mx.dtype_of(g, packed))
    return [g.op("Add", lower, unit_diagonal), mx.leading(g, mx.triangle(g, packed, upper=True), count, -2)]


@onnx_symbolic("composed::singular_column")
def singular_column(g: GraphContext, packed: Value) -> Value:
    """The position of the first zero on the diagonal of U, counted from 1; 0 for none. INT32 `[...]`."""
    rows, columns = mx.height(g, packed), mx.width(g, packed)
    mask = mx.diagonal_mask(g, rows, columns)
    values = mx.total(g, mx.where(g, mask, packed, 0), -2)
    has_diagonal = mx.total(g, g.cast(mask, DataType.FLOAT), -2)
    zero = g.op("And", mx.is_zero(g, values), g.cast(has_diagonal, DataType.BOOL))
    end = g.cast(g.constant(columns), DataType.FLOAT)
    penalty = g.op("Mul", g.cast(g.op("Not", zero), DataType.FLOAT), end)
    positions = g.op("Add", penalty, g.op("Add", mx.numbers(g, columns), 1.0))
    # An additional column represents none, so that ReduceMin has an element.
    extra_column = mx.zeros(g, [*mx.batch_sizes(g, packed), 1], DataType.FLOAT)
    extra_column = g.op("Add", extra_column, g.op("Add", end, 1.0))
    positions = g.op("Concat", positions, extra_column, axis=mx.matrix_rank(g, packed) - 2)
    first = g.op("ReduceMin", positions, axes=[mx.matrix_rank(g, packed) - 2], keepdims=0)
    is_singular = g.op("Not", g.op("Greater", first, end))
    return g.cast(g.op("Mul", first, g.cast(is_singular, DataType.FLOAT)), DataType.INT32)


def _refuse_without_pivots(g: GraphContext, pivot: bool) -> None:
    if not pivot:
        raise g.refuse("pivot=False is not supported, and PyTorch has it on CUDA only: pass pivot=True")


@onnx_symbolic("aten::linalg_lu")
def linalg_lu(g: GraphContext, A: Value, pivot: bool = True) -> list[Value]:
    _refuse_without_pivots(g, pivot)
    packed, _, order = g.call_outputs("composed::lu", A)
    return [_permutation(g, order, mx.height(g, A), mx.dtype_of(g, A)), *_factors(g, packed)]


@onnx_symbolic("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(g: GraphContext, A: Value, pivot: bool = True) -> list[Value]:
    _refuse_without_pivots(g, pivot)
    packed, pivots, _ = g.call_outputs("composed::lu", A)
    return [packed, g.cast(pivots, DataType.INT32), singular_column(g, packed)]


@onnx_symbolic("aten::_lu_with_info")
def _lu_with_info(g: GraphContext, self: Value, pivot: bool = True) -> list[Value]:
    return g.call_outputs("aten::linalg_lu_factor_ex", self, pivot)


@onnx_symbolic("aten::linalg_lu_factor")
def linalg_lu_factor(g: GraphContext, A: Value, pivot: bool = True) -> list[Value]:
    return g.call_outputs("aten::linalg_lu_factor_ex", A, pivot)[:2]


@onnx_symbolic("aten::lu_unpack")
def lu_unpack(
    g: GraphContext, LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> list[Value]:
    """Outputs that are not requested are empty."""
    dtype, rows = mx.dtype_of(g, LU_data), mx.height(g, LU_data)
    empty = mx.zeros(g, [0], dtype)
    factors = _factors(g, LU_data) if unpack_data else [empty, empty]
    if not unpack_pivots:
        return [empty, *factors]
    order = g.call("composed::row_order", LU_pivots, rows)
    return [_permutation(g, order, rows, dtype), *factors]


@onnx_symbolic("composed::lu_solve")
def composed_lu_solve(g: GraphContext, packed: Value, order: Value, B: Value, adjoint: bool) -> Value:
    """X of `A X = B`, or of `A^T X = B`, from the factors of A and the order of its rows."""
    permutation = _permutation(g, order, mx.height(g, packed), mx.dtype_of(g, packed))
    if adjoint:
        flipped = mx.transpose(g, packed)
        half = g.call("composed::solve_triangular", flipped, B, upper=False, unitriangular=False)
        half = g.call("composed::solve_triangular", flipped, half, upper=True, unitriangular=True)
        return g.op("MatMul", permutation, half)
    half = g.op("MatMul", mx.transpose(g, permutation), B)
    half = g.call("composed::solve_triangular", packed, half, upper=False, unitriangular=True)
    return g.call("composed::solve_triangular", packed, half, upper=True, unitriangular=False)

"""LDL factorisation of symmetric indefinite matrices (Bunch and Kaufman), and solving with it.

Semantics: sytf2 and sytrs of LAPACK for the lower triangle. D has blocks of one or two rows; a negative pivot
marks the two rows of a block.
"""

import math

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.size_arithmetic import Size, compute

_ALPHA = (1 + math.sqrt(17)) / 8


def _mask_of_position(g: GraphContext, position: Value, count: Size) -> Value:
    """A mask of one position in each matrix, BOOL `[..., n]`.

    Args:
        position: FLOAT `[..., 1]`.
    """
    return g.op("Equal", g.cast(position, DataType.INT64), mx.positions(g, count))


def _pivot(g: GraphContext, matrix: Value, index: Value, count: Size) -> tuple[Value, Value]:
    """The row to exchange into a column's block (FLOAT `[..., 1]`), and whether the block has two rows."""
    dtype = mx.dtype_of(g, matrix)
    number = g.cast(index, DataType.FLOAT)
    values = mx.column(g, matrix, index)
    diagonal_size = g.op("Abs", mx.element(g, values, index))
    below = mx.where(g, mx.after(g, count, index), g.op("Abs", values), 0)
    largest, partner = mx.first_largest(g, below, count)
    row = mx.total(g, mx.where(g, mx.as_row(g, _mask_of_position(g, partner, count)), matrix, 0))
    partner_element = mx.where(g, _mask_of_position(g, partner, count), row, 0)
    partner_size = g.op("Abs", mx.total(g, partner_element, keepdim=True))
    is_other_row = g.op(
        "And", _mask_from_position(g, index, count), g.op("Not", _mask_of_position(g, partner, count))
    )
    widest = g.op(
        "ReduceMax", mx.where(g, is_other_row, g.op("Abs", row), 0), axes=[(g.rank(row) or 1) - 1], keepdims=1
    )
    # A row of zeros has no share: dividing by 1 avoids 0 / 0.
    share = g.op("Div", largest, g.op("Add", widest, g.cast(mx.is_zero(g, widest), dtype)))
    bound = g.op("Mul", largest, _ALPHA)
    # LAPACK's test: the diagonal element is a good pivot if it is large compared to its column.
    stays = g.op("Not", g.op("Less", diagonal_size, bound))
    stays = g.op("Or", stays, g.op("Not", g.op("Less", diagonal_size, g.op("Mul", bound, share))))
    single = g.op("Or", stays, g.op("Not", g.op("Less", partner_size, g.op("Mul", widest, _ALPHA))))
    return mx.where(g, stays, g.op("Add", g.op("Mul", partner, 0.0), number), partner), g.op("Not", single)


def _mask_from_position(g: GraphContext, position: Value, count: Size) -> Value:
    """A mask of the positions from a given one on, BOOL `[n]`."""
    return g.op("Not", g.op("Less", mx.numbers(g, count), g.cast(position, DataType.FLOAT)))


def _next(g: GraphContext, index: Value, count: Size) -> Value:
    """The next position; the last position has no next one, and is returned unchanged."""
    following = g.op("Add", index, 1)
    past = g.op("Equal", following, g.constant(count))
    return g.op("Sub", following, g.cast(past, DataType.INT64))


def _eliminate_block(
    g: GraphContext, matrix: Value, index: Value, double: Value, count: Size
) -> tuple[Value, Value, Value]:
    """The matrix after elimination of a block, and the block's two columns of the factors.

    Args:
        double: whether the block has two rows; otherwise the second column is meaningless.
    """
    dtype = mx.dtype_of(g, matrix)
    following = _next(g, index, count)
    x, y = mx.column(g, matrix, index), mx.column(g, matrix, following)
    below, is_current = mx.after(g, count, index), mx.unit(g, count, index)
    beyond = mx.after(g, count, following)
    pivot = mx.element(g, x, index)
    # Both kinds of blocks are computed for every matrix; the one that does not apply must not divide by 0.
    safe = g.op("Add", pivot, g.cast(mx.is_zero(g, pivot), dtype))
    single = mx.where(g, below, g.op("Div", x, safe), 0)
    coupling = mx.element(g, x, following)
    safe = mx.where(g, double, coupling, g.constant(1.0, dtype))
    first, second = g.op("Div", mx.element(g, y, following), safe), g.op("Div", pivot, safe)
    scale = g.op("Sub", g.op("Mul", first, second), 1.0)
    scale = g.op("Mul", mx.where(g, double, scale, g.constant(1.0, dtype)), safe)
    first_factors = g.op("Div", g.op("Sub", g.op("Mul", first, x), y), scale)
    second_factors = g.op("Div", g.op("Sub", g.op("Mul", second, y), x), scale)
    first_factors, second_factors = (
        mx.where(g, beyond, first_factors, 0),
        mx.where(g, beyond, second_factors, 0),
    )
    of_single = mx.outer(g, single, mx.where(g, below, x, 0))
    pair = ((x, first_factors), (y, second_factors))
    of_double = g.op("Add", *(mx.outer(g, mx.where(g, beyond, a, 0), b) for a, b in pair))
    change = mx.where(g, mx.as_column(g, double), of_double, of_single)
    corner = mx.where(g, g.op("Or", is_current, mx.unit(g, count, following)), x, first_factors)
    first_column = mx.where(g, double, corner, mx.where(g, is_current, x, single))
    second_column = mx.where(g, mx.unit(g, count, following), y, second_factors)
    return g.op("Sub", matrix, change), first_column, second_column


@onnx_symbolic("composed::ldl")
def composed_ldl(g: GraphContext, self: Value) -> list[Value]:
    """The factors in the lower triangle, LAPACK's pivots (INT64) and its info (FLOAT).

    The first column of a block of two rows eliminates it; the step of the second column does nothing.
    """
    count = mx.height(g, self)
    half = mx.triangle(g, self, upper=False, strict=True)
    on_diagonal = mx.where(g, mx.diagonal_mask(g, count, count), self, 0)
    matrix = g.op("Add", g.op("Add", half, mx.transpose(g, half)), on_diagonal)
    batch = mx.batch_sizes(g, self)

    def step(
        index: Value, matrix: Value, factors: Value, pivots: Value, info: Value, done: Value
    ) -> list[Value]:
        partner, double = _pivot(g, matrix, index, count)
        is_done = g.cast(done, DataType.BOOL)
        double = g.op("And", double, g.op("Not", is_done))
        following = _next(g, index, count)
        number = g.op("Add", g.cast(index, DataType.FLOAT), g.cast(double, DataType.FLOAT))
        partner = mx.where(g, is_done, number, partner)
        exchanged = _mask_of_position(g, number, count), _mask_of_position(g, partner, count)
        # The same two columns too, so that the matrix stays symmetric.
        matrix = mx.transpose(g, mx.exchange_rows(g, matrix, *exchanged))
        matrix = mx.transpose(g, mx.exchange_rows(g, matrix, *exchanged))
        remainder, first, second = _eliminate_block(g, matrix, index, double, count)
        is_current, is_following = mx.unit(g, count, index), mx.unit(g, count, following)
        new_factors = mx.where(g, mx.as_row(g, is_current), mx.as_column(g, first), factors)
        of_second = g.op("And", mx.as_row(g, is_following), mx.as_column(g, double))
        new_factors = mx.where(g, of_second, mx.as_column(g, second), new_factors)
        pivot = g.op("Add", g.cast(partner, DataType.INT64), 1)
        pivot = mx.where(g, double, g.op("Neg", pivot), pivot)
        new_pivots = mx.where(g, is_current, pivot, pivots)
        new_pivots = mx.where(g, g.op("And", is_following, double), pivot, new_pivots)
        zero = mx.is_zero(
            g,
            mx.total(
                g, g.op("Abs", mx.where(g, _mask_from_position(g, index, count), first, 0)), keepdim=True
            ),
        )
        zero = g.op("And", g.op("And", zero, mx.is_zero(g, info)), g.op("Not", is_done))
        failed = g.op("Mul", g.cast(zero, DataType.FLOAT), g.op("Add", g.cast(index, DataType.FLOAT), 1.0))
        square = mx.as_column(g, is_done)
        return [
            mx.where(g, square, matrix, remainder),
            mx.where(g, square, factors, new_factors),
            mx.where(g, is_done, pivots, new_pivots),
            g.op("Add", info, failed),
            g.cast(double, DataType.FLOAT),
        ]

    zeros = mx.zeros(g, [*batch, 1], DataType.FLOAT)
    pivots = mx.zeros(g, [*batch, count], DataType.INT64)
    initial = [matrix, g.op("Mul", matrix, 0.0), pivots, zeros, zeros]
    _, factors, pivots, info, _ = mx.run_loop(g, count, step, initial)
    return [mx.triangle(g, factors, upper=False), pivots, g.op("Squeeze", info, axes=[len(batch)])]


@onnx_symbolic("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(g: GraphContext, self: Value, hermitian: bool = False) -> list[Value]:
    factors, pivots, info = g.call_outputs("composed::ldl", self)
    return [factors, g.cast(pivots, DataType.INT32), g.cast(info, DataType.INT32)]


@onnx_symbolic("aten::linalg_ldl_factor")
def linalg_ldl_factor(g: GraphContext, self: Value, hermitian: bool = False) -> list[Value]:
    return g.call_outputs("aten::linalg_ldl_factor_ex", self, hermitian)[:2]


def _block_solution(
    g: GraphContext, factors: Value, solved: Value, index: Value, double: Value, single: Value
) -> Value:
    """Divide rows by their block of D; rows that are marked neither double nor single stay."""
    count, unit = mx.height(g, factors), g.constant(1.0, mx.dtype_of(g, factors))
    following = _next(g, index, count)
    x, y = mx.column(g, factors, index), mx.column(g, factors, following)
    first, second = (mx.as_row(g, mx.row(g, solved, i)) for i in (index, following))
    is_double = mx.as_column(g, double)
    pivot, coupling, last = (
        mx.as_column(g, mx.element(g, vector, i))
        for vector, i in ((x, index), (x, following), (y, following))
    )
    coupling = mx.where(g, is_double, coupling, unit)
    upper, lower = g.op("Div", pivot, coupling), g.op("Div", last, coupling)
    scale = g.op("Sub", g.op("Mul", upper, lower), 1.0)
    scale = g.op("Mul", mx.where(g, is_double, scale, unit), coupling)
    above = g.op("Div", g.op("Sub", g.op("Mul", lower, first), second), scale)
    below = g.op("Div", g.op("Sub", g.op("Mul", upper, second), first), scale)
    is_current, is_following = (mx.as_column(g, mx.unit(g, count, i)) for i in (index, following))
    first_row = mx.where(
        g, is_double, above, g.op("Div", first, mx.where(g, mx.as_column(g, single), pivot, unit))
    )
    result = mx.where(g, is_current, first_row, solved)
    return mx.where(g, g.op("And", is_following, is_double), below, result)


def _step_of(g: GraphContext, pivots: Value, index: Value, done: Value) -> tuple[Value, Value, Value]:
    """The pivot's row, whether a block of two rows begins here, and whether this is its second row."""
    pivot = mx.element(g, pivots, index)
    is_done = g.cast(done, DataType.BOOL)
    double = g.op("And", g.op("Less", g.cast(pivot, DataType.FLOAT), 0.0), g.op("Not", is_done))
    # LAPACK counts rows from 1, and negates the pivots of a block of two.
    partner = g.op("Sub", g.op("Abs", g.cast(pivot, DataType.FLOAT)), 1.0)
    return partner, double, is_done


@onnx_symbolic("aten::linalg_ldl_solve")
def linalg_ldl_solve(g: GraphContext, LD: Value, pivots: Value, B: Value, hermitian: bool = False) -> Value:
    """Solve downwards with L and D, then upwards with L transposed."""
    count, dtype = mx.height(g, LD), mx.dtype_of(g, LD)

    def down(index: Value, solved: Value, done: Value) -> list[Value]:
        partner, double, is_done = _step_of(g, pivots, index, done)
        number = g.op("Add", g.cast(index, DataType.FLOAT), g.cast(double, DataType.FLOAT))
        rows = mx.exchange_rows(
            g, solved, _mask_of_position(g, number, count), _mask_of_position(g, partner, count)
        )
        following = _next(g, index, count)
        beyond = mx.after(g, count, following)
        first = mx.where(g, g.op("Or", beyond, g.op("Not", double)), mx.column(g, LD, index), 0)
        first = mx.where(g, mx.after(g, count, index), first, 0)
        second = mx.where(g, g.op("And", beyond, double), mx.column(g, LD, following), 0)
        pairs = ((first, index), (second, following))
        change = g.op("Add", *(mx.outer(g, factor, mx.row(g, rows, row)) for factor, row in pairs))
        single = g.op("Not", g.op("Or", double, is_done))
        rows = _block_solution(g, LD, g.op("Sub", rows, change), index, double, single)
        return [mx.where(g, mx.as_column(g, is_done), solved, rows), g.cast(double, DataType.FLOAT)]

    def up(iteration: Value, solved: Value, done: Value) -> list[Value]:
        index = g.op("Sub", g.constant(compute(g, "sub", count, 1)), iteration)
        partner, double, is_done = _step_of(g, pivots, index, done)
        first = g.op("Equal", index, 0)
        # Row 0 has no row before it: row 0 itself stands in, and `double` is false there.
        previous = g.op("Add", g.op("Sub", index, 1), g.cast(first, DataType.INT64))
        rows = solved
        for row, mask in ((index, None), (previous, double)):
            factor = mx.where(g, mx.after(g, count, index), mx.column(g, LD, row), 0)
            factor = factor if mask is None else mx.where(g, mask, factor, 0)
            change = g.op("MatMul", mx.as_row(g, factor), solved)
            unit_column = g.cast(mx.as_column(g, mx.unit(g, count, row)), dtype)
            rows = g.op("Sub", rows, g.op("Mul", unit_column, change))
        is_current = _mask_of_position(g, g.cast(index, DataType.FLOAT), count)
        rows = mx.exchange_rows(g, rows, is_current, _mask_of_position(g, partner, count))
        return [mx.where(g, mx.as_column(g, is_done), solved, rows), g.cast(double, DataType.FLOAT)]

    zero = mx.zeros(g, [*mx.batch_sizes(g, LD), 1], DataType.FLOAT)
    start = g.op("Add", B, mx.zeros(g, [*mx.batch_sizes(g, LD), 1, 1], dtype))
    solved, _ = mx.run_loop(g, count, down, [start, zero])
    return mx.run_loop(g, count, up, [solved, zero])[0]

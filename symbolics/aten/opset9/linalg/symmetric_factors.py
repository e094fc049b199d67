"""LDL factorisation of symmetric indefinite matrices (Bunch and Kaufman), and solving with it.

Semantics: sytf2 and sytrs of LAPACK for the lower triangle. D has blocks of one or two rows; a negative pivot
marks the two rows of a block.
"""

import math

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions import matrices as mx
from ....compositions.sizes import Size, compute

_ALPHA = (1 + math.sqrt(17)) / 8


def _first_largest(g: GraphContext, sizes: Value, count: Size) -> tuple[Value, Value]:
    """The largest of non-negative numbers, `[..., 1]`, and its first position, FLOAT `[..., 1]`."""
    axis = (g.rank(sizes) or 1) - 1
    largest = g.op("ReduceMax", sizes, axes=[axis], keepdims=1)
    behind = g.cast(g.op("Less", sizes, largest), DataType.FLOAT)
    places = g.op("Add", g.op("Mul", behind, g.cast(g.constant(count), DataType.FLOAT)), mx.numbers(g, count))
    return largest, g.op("ReduceMin", places, axes=[axis], keepdims=1)


def _mask_of_position(g: GraphContext, place: Value, count: Size) -> Value:
    """A mask of one position in each matrix, BOOL `[..., n]`.

    Args:
        place: FLOAT `[..., 1]`.
    """
    return g.op("Equal", g.cast(place, DataType.INT64), mx.positions(g, count))


def _picked(g: GraphContext, vector: Value, where: Value) -> Value:
    """The marked element of each vector, `[..., 1]`."""
    return mx.total(g, mx.chosen(g, where, vector, 0), keepdim=True)


def _column_at(g: GraphContext, matrix: Value, where: Value) -> Value:
    """The marked column of each matrix."""
    return mx.total(g, mx.chosen(g, mx.as_row(g, where), matrix, 0))


def _exchanged_rows(g: GraphContext, matrix: Value, first: Value, second: Value) -> Value:
    first, second = mx.as_column(g, first), mx.as_column(g, second)
    of_first = mx.total(g, mx.chosen(g, first, matrix, 0), -2, keepdim=True)
    of_second = mx.total(g, mx.chosen(g, second, matrix, 0), -2, keepdim=True)
    return mx.chosen(g, first, of_second, mx.chosen(g, second, of_first, matrix))


def _with_exchanged_rows_and_columns(g: GraphContext, matrix: Value, first: Value, second: Value) -> Value:
    """A symmetric matrix with two rows, and the same two columns, exchanged."""
    half = mx.transposed(g, _exchanged_rows(g, matrix, first, second))
    return mx.transposed(g, _exchanged_rows(g, half, first, second))


def _pivot(g: GraphContext, matrix: Value, place: Value, count: Size) -> tuple[Value, Value]:
    """The row to exchange into a column's block (FLOAT `[..., 1]`), and whether the block has two rows."""
    dtype = mx.dtype_of(g, matrix)
    number = g.cast(place, DataType.FLOAT)
    values = mx.column(g, matrix, place)
    own = g.op("Abs", mx.element(g, values, place))
    below = mx.chosen(g, mx.after(g, count, place), g.op("Abs", values), 0)
    largest, at = _first_largest(g, below, count)
    row = _column_at(g, matrix, _mask_of_position(g, at, count))
    other = g.op("Abs", _picked(g, row, _mask_of_position(g, at, count)))
    rest = g.op("And", _mask_from_position(g, place, count), g.op("Not", _mask_of_position(g, at, count)))
    widest = g.op(
        "ReduceMax", mx.chosen(g, rest, g.op("Abs", row), 0), axes=[(g.rank(row) or 1) - 1], keepdims=1
    )
    share = g.op("Div", largest, g.op("Add", widest, g.cast(mx.is_zero(g, widest), dtype)))
    bound = g.op("Mul", largest, _ALPHA)
    stays = g.op("Not", g.op("Less", own, bound))
    stays = g.op("Or", stays, g.op("Not", g.op("Less", own, g.op("Mul", bound, share))))
    single = g.op("Or", stays, g.op("Not", g.op("Less", other, g.op("Mul", widest, _ALPHA))))
    return mx.chosen(g, stays, g.op("Add", g.op("Mul", at, 0.0), number), at), g.op("Not", single)


def _mask_from_position(g: GraphContext, place: Value, count: Size) -> Value:
    """A mask of the positions from a given one on, BOOL `[n]`."""
    return g.op("Not", g.op("Less", mx.numbers(g, count), g.cast(place, DataType.FLOAT)))


def _next(g: GraphContext, place: Value, count: Size) -> Value:
    """The next position; for the last one, the same."""
    following = g.op("Add", place, 1)
    past = g.op("Equal", following, g.constant(count))
    return g.op("Sub", following, g.cast(past, DataType.INT64))


def _eliminated(
    g: GraphContext, matrix: Value, place: Value, double: Value, count: Size
) -> tuple[Value, Value, Value]:
    """The matrix after elimination of a block, and the block's two columns of the factors.

    Args:
        double: whether the block has two rows; otherwise the second column is meaningless.
    """
    dtype = mx.dtype_of(g, matrix)
    following = _next(g, place, count)
    x, y = mx.column(g, matrix, place), mx.column(g, matrix, following)
    below, here = mx.after(g, count, place), mx.unit(g, count, place)
    beyond = mx.after(g, count, following)
    pivot = mx.element(g, x, place)
    safe = g.op("Add", pivot, g.cast(mx.is_zero(g, pivot), dtype))
    single = mx.chosen(g, below, g.op("Div", x, safe), 0)
    coupling = mx.element(g, x, following)
    safe = mx.chosen(g, double, coupling, g.constant(1.0, dtype))
    first, second = g.op("Div", mx.element(g, y, following), safe), g.op("Div", pivot, safe)
    scale = g.op("Sub", g.op("Mul", first, second), 1.0)
    scale = g.op("Mul", mx.chosen(g, double, scale, g.constant(1.0, dtype)), safe)
    left = g.op("Div", g.op("Sub", g.op("Mul", first, x), y), scale)
    right = g.op("Div", g.op("Sub", g.op("Mul", second, y), x), scale)
    left, right = mx.chosen(g, beyond, left, 0), mx.chosen(g, beyond, right, 0)
    of_single = mx.outer(g, single, mx.chosen(g, below, x, 0))
    pair = ((x, left), (y, right))
    of_double = g.op("Add", *(mx.outer(g, mx.chosen(g, beyond, a, 0), b) for a, b in pair))
    change = mx.chosen(g, mx.as_column(g, double), of_double, of_single)
    corner = mx.chosen(g, g.op("Or", here, mx.unit(g, count, following)), x, left)
    columns = mx.chosen(g, double, corner, mx.chosen(g, here, x, single))
    after_it = mx.chosen(g, mx.unit(g, count, following), y, right)
    return g.op("Sub", matrix, change), columns, after_it


@onnx_symbolic("composed::ldl")
def composed_ldl(g: GraphContext, self: Value) -> list[Value]:
    """The factors in the lower triangle, LAPACK's pivots (INT64) and its info (FLOAT).

    The first column of a block of two rows eliminates it; the step of the second column does nothing.
    """
    count = mx.height(g, self)
    half = mx.triangle(g, self, upper=False, strict=True)
    on_diagonal = mx.chosen(g, mx.diagonal_mask(g, count, count), self, 0)
    matrix = g.op("Add", g.op("Add", half, mx.transposed(g, half)), on_diagonal)
    batch = mx.batch_sizes(g, self)

    def step(
        place: Value, matrix: Value, factors: Value, pivots: Value, info: Value, done: Value
    ) -> list[Value]:
        at, double = _pivot(g, matrix, place, count)
        is_done = g.cast(done, DataType.BOOL)
        double = g.op("And", double, g.op("Not", is_done))
        following = _next(g, place, count)
        number = g.op("Add", g.cast(place, DataType.FLOAT), g.cast(double, DataType.FLOAT))
        at = mx.chosen(g, is_done, number, at)
        matrix = _with_exchanged_rows_and_columns(
            g, matrix, _mask_of_position(g, number, count), _mask_of_position(g, at, count)
        )
        left_over, first, second = _eliminated(g, matrix, place, double, count)
        here, there = mx.unit(g, count, place), mx.unit(g, count, following)
        written = mx.chosen(g, mx.as_row(g, here), mx.as_column(g, first), factors)
        of_second = g.op("And", mx.as_row(g, there), mx.as_column(g, double))
        written = mx.chosen(g, of_second, mx.as_column(g, second), written)
        pivot = g.op("Add", g.cast(at, DataType.INT64), 1)
        pivot = mx.chosen(g, double, g.op("Neg", pivot), pivot)
        marked = mx.chosen(g, here, pivot, pivots)
        marked = mx.chosen(g, g.op("And", there, double), pivot, marked)
        zero = mx.is_zero(
            g,
            mx.total(
                g, g.op("Abs", mx.chosen(g, _mask_from_position(g, place, count), first, 0)), keepdim=True
            ),
        )
        zero = g.op("And", g.op("And", zero, mx.is_zero(g, info)), g.op("Not", is_done))
        failed = g.op("Mul", g.cast(zero, DataType.FLOAT), g.op("Add", g.cast(place, DataType.FLOAT), 1.0))
        square = mx.as_column(g, is_done)
        return [
            mx.chosen(g, square, matrix, left_over),
            mx.chosen(g, square, factors, written),
            mx.chosen(g, is_done, pivots, marked),
            g.op("Add", info, failed),
            g.cast(double, DataType.FLOAT),
        ]

    nothing = mx.zeros(g, [*batch, 1], DataType.FLOAT)
    pivots = mx.zeros(g, [*batch, count], DataType.INT64)
    initial = [matrix, g.op("Mul", matrix, 0.0), pivots, nothing, nothing]
    _, factors, pivots, info, _ = mx.repeated(g, count, step, initial)
    return [mx.triangle(g, factors, upper=False), pivots, g.op("Squeeze", info, axes=[len(batch)])]


@onnx_symbolic("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(g: GraphContext, self: Value, hermitian: bool = False) -> list[Value]:
    factors, pivots, info = g.call_outputs("composed::ldl", self)
    return [factors, g.cast(pivots, DataType.INT32), g.cast(info, DataType.INT32)]


@onnx_symbolic("aten::linalg_ldl_factor")
def linalg_ldl_factor(g: GraphContext, self: Value, hermitian: bool = False) -> list[Value]:
    return g.call_outputs("aten::linalg_ldl_factor_ex", self, hermitian)[:2]


def _block_solution(
    g: GraphContext, factors: Value, solved: Value, place: Value, double: Value, single: Value
) -> Value:
    """Divide rows by their block of D; rows that are marked neither double nor single stay."""
    count, one = mx.height(g, factors), g.constant(1.0, mx.dtype_of(g, factors))
    following = _next(g, place, count)
    x, y = mx.column(g, factors, place), mx.column(g, factors, following)
    first, second = (mx.as_row(g, mx.row(g, solved, at)) for at in (place, following))
    is_double = mx.as_column(g, double)
    pivot, coupling, last = (
        mx.as_column(g, mx.element(g, vector, at))
        for vector, at in ((x, place), (x, following), (y, following))
    )
    coupling = mx.chosen(g, is_double, coupling, one)
    upper, lower = g.op("Div", pivot, coupling), g.op("Div", last, coupling)
    scale = g.op("Sub", g.op("Mul", upper, lower), 1.0)
    scale = g.op("Mul", mx.chosen(g, is_double, scale, one), coupling)
    above = g.op("Div", g.op("Sub", g.op("Mul", lower, first), second), scale)
    below = g.op("Div", g.op("Sub", g.op("Mul", upper, second), first), scale)
    here, there = (mx.as_column(g, mx.unit(g, count, at)) for at in (place, following))
    alone = mx.chosen(
        g, is_double, above, g.op("Div", first, mx.chosen(g, mx.as_column(g, single), pivot, one))
    )
    result = mx.chosen(g, here, alone, solved)
    return mx.chosen(g, g.op("And", there, is_double), below, result)


def _step_of(g: GraphContext, pivots: Value, place: Value, done: Value) -> tuple[Value, Value, Value]:
    """The pivot's row, whether a block of two rows begins here, and whether this is its second row."""
    pivot = mx.element(g, pivots, place)
    is_done = g.cast(done, DataType.BOOL)
    double = g.op("And", g.op("Less", g.cast(pivot, DataType.FLOAT), 0.0), g.op("Not", is_done))
    at = g.op("Sub", g.op("Abs", g.cast(pivot, DataType.FLOAT)), 1.0)
    return at, double, is_done


@onnx_symbolic("aten::linalg_ldl_solve")
def linalg_ldl_solve(g: GraphContext, LD: Value, pivots: Value, B: Value, hermitian: bool = False) -> Value:
    """Solve downwards with L and D, then upwards with L transposed."""
    count, dtype = mx.height(g, LD), mx.dtype_of(g, LD)

    def down(place: Value, solved: Value, done: Value) -> list[Value]:
        at, double, is_done = _step_of(g, pivots, place, done)
        number = g.op("Add", g.cast(place, DataType.FLOAT), g.cast(double, DataType.FLOAT))
        rows = _exchanged_rows(
            g, solved, _mask_of_position(g, number, count), _mask_of_position(g, at, count)
        )
        following = _next(g, place, count)
        beyond = mx.after(g, count, following)
        first = mx.chosen(g, g.op("Or", beyond, g.op("Not", double)), mx.column(g, LD, place), 0)
        first = mx.chosen(g, mx.after(g, count, place), first, 0)
        second = mx.chosen(g, g.op("And", beyond, double), mx.column(g, LD, following), 0)
        pairs = ((first, place), (second, following))
        change = g.op("Add", *(mx.outer(g, factor, mx.row(g, rows, at)) for factor, at in pairs))
        single = g.op("Not", g.op("Or", double, is_done))
        rows = _block_solution(g, LD, g.op("Sub", rows, change), place, double, single)
        return [mx.chosen(g, mx.as_column(g, is_done), solved, rows), g.cast(double, DataType.FLOAT)]

    def up(iteration: Value, solved: Value, done: Value) -> list[Value]:
        place = g.op("Sub", g.constant(compute(g, "sub", count, 1)), iteration)
        at, double, is_done = _step_of(g, pivots, place, done)
        first = g.op("Equal", place, 0)
        previous = g.op("Add", g.op("Sub", place, 1), g.cast(first, DataType.INT64))
        rows = solved
        for where, meant in ((place, None), (previous, double)):
            factor = mx.chosen(g, mx.after(g, count, place), mx.column(g, LD, where), 0)
            factor = factor if meant is None else mx.chosen(g, meant, factor, 0)
            change = g.op("MatMul", mx.as_row(g, factor), solved)
            here = g.cast(mx.as_column(g, mx.unit(g, count, where)), dtype)
            rows = g.op("Sub", rows, g.op("Mul", here, change))
        own = _mask_of_position(g, g.cast(place, DataType.FLOAT), count)
        rows = _exchanged_rows(g, rows, own, _mask_of_position(g, at, count))
        return [mx.chosen(g, mx.as_column(g, is_done), solved, rows), g.cast(double, DataType.FLOAT)]

    nothing = mx.zeros(g, [*mx.batch_sizes(g, LD), 1], DataType.FLOAT)
    start = g.op("Add", B, mx.zeros(g, [*mx.batch_sizes(g, LD), 1, 1], dtype))
    solved, _ = mx.repeated(g, count, down, [start, nothing])
    return mx.repeated(g, count, up, [solved, nothing])[0]

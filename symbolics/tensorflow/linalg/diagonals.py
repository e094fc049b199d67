"""Diagonals of matrices: reads, writes, construction; bands."""

from collections.abc import Sequence

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of, static_size
from .._common import integers, number, set_shape
from .bands import Band, count_diagonals, read_band, write_band

_LEFT_ALIGNED = "LEFT_LEFT"
"""The alignment of the diagonals in the operators before version 3, which have no attribute for it."""


def _diagonal_number(g: GraphContext, k: Value | None) -> Size | Band:
    """A single diagonal, or the lowest and the highest one; None stands for the main diagonal."""
    if k is None:
        return 0
    diagonals = integers(g, k)
    if diagonals is None:
        if g.rank(k) == 0 or static_size(g, k, 0) == 1:
            return number(g, k)
        ends = (
            g.op("Slice", k, starts=[start], ends=[end], axes=[0]) for start, end in ((0, 1), (-1, 2**31))
        )
        lowest, highest = (number(g, end) for end in ends)
        return lowest, highest
    if len(diagonals) not in (1, 2) or diagonals[0] > diagonals[-1]:
        raise g.refuse(f"'k' must be one number, or two in order, not {diagonals}")
    return diagonals[0] if diagonals[0] == diagonals[-1] else (diagonals[0], diagonals[-1])


def _matrix_positions(
    g: GraphContext, rows: int, columns: int, band: tuple[int, int], align: str
) -> np.ndarray:
    """The flat position of each element of the diagonals, highest diagonal first; -1 for padding."""
    # Bound the constants that a small file can ask for.
    g.reserve(max(0, band[1] - band[0] + 1), min(rows, columns))
    above_is_left, below_is_left = (part == "LEFT" for part in align.split("_"))
    lengths = {k: min(rows + min(k, 0), columns - max(k, 0)) for k in range(band[0], band[1] + 1)}
    longest = max(lengths.values())
    positions = np.full((len(lengths), longest), -1, dtype=np.int64)
    for row, k in enumerate(sorted(lengths, reverse=True)):
        is_left = (k >= 0 and above_is_left) or (k <= 0 and below_is_left)
        offset = 0 if is_left else longest - lengths[k]
        steps = np.arange(lengths[k])
        positions[row, offset : offset + lengths[k]] = (steps + max(-k, 0)) * columns + steps + max(k, 0)
    return positions


def _gather_positions(g: GraphContext, rows: Value, positions: np.ndarray, filler: Value) -> Value:
    """Gather elements of flattened matrices at constant positions; -1 is padding."""
    # Padding reads any element, which `filler` replaces below.
    gathered = g.op("Gather", rows, np.maximum(positions, 0), axis=known_rank(g, rows) - 1)
    # Diagonals of the same length have no padding.
    if (positions >= 0).all():
        return gathered
    return g.call("composed::where", condition=g.constant(positions >= 0), self=gathered, other=filler)


def _flatten_last(g: GraphContext, value: Value, dims: int = 2) -> Value:
    """Flatten the last dimensions of a tensor."""
    if dims == 1:
        return value
    sizes = sizes_of(g, value)
    return g.call("aten::reshape", self=value, shape=[*sizes[:-dims], product(g, sizes[-dims:])])


def _known_sizes(g: GraphContext, value: Value) -> tuple[int, int] | None:
    rank = known_rank(g, value)
    rows, columns = (static_size(g, value, rank - distance) for distance in (2, 1))
    return None if rows is None or columns is None else (rows, columns)


def _constant_band(band: Size | Band) -> tuple[int, int] | None:
    """The lowest and the highest diagonal; None if one of them is computed."""
    lowest, highest = band if isinstance(band, tuple) else (band, band)
    return None if isinstance(lowest, Value) or isinstance(highest, Value) else (lowest, highest)


def _rank_lost(g: GraphContext, value: Value, shape: Sequence[Size | Value]) -> Value:
    """Reshape to sizes and vectors of sizes, whose number is computed."""
    vectors = [v if isinstance(v, Value) and g.rank(v) == 1 else g.stack([v]) for v in shape]
    return g.op("Reshape", value, g.op("Concat", *vectors, axis=0))


def _leading(g: GraphContext, sizes: Value, count: Size) -> Value:
    """The first sizes; below opset 10, Slice takes no computed bounds."""
    return set_shape(g.op("Gather", sizes, g.call("sym::range", start=0, end=count), axis=0), [None])


def _read_computed_band(g: GraphContext, input: Value, band: Band, filler: Value, align: str) -> Value:
    """The diagonals of a computed band; a band of one diagonal has no dimension for their number."""
    diagonals = read_band(g, input, band, filler, align)
    *batch, count, longest = sizes_of(g, diagonals)
    numbers = g.stack([count])
    # One element if there are several diagonals, else none.
    number_of_diagonals = _leading(g, numbers, compute(g, "min", compute(g, "sub", count, 1), 1))
    return _rank_lost(g, diagonals, [*batch, number_of_diagonals, longest])


def _read_diagonals(g: GraphContext, input: Value, k: Size | Band, filler: Value, align: str) -> Value:
    sizes, band = _known_sizes(g, input), _constant_band(k)
    if isinstance(k, tuple) and band is None:
        return _read_computed_band(g, input, k, filler, align)
    if sizes is not None and band is not None:
        positions = _matrix_positions(g, *sizes, band, align)
        if not isinstance(k, tuple):
            positions = positions[0]
        return _gather_positions(g, _flatten_last(g, input), positions, filler)
    if isinstance(k, tuple):
        return read_band(g, input, k, filler, align)
    rows, columns = sizes_of(g, input)[-2:]
    above, below = compute(g, "max", k, 0), compute(g, "min", k, 0)
    length = compute(g, "min", compute(g, "add", rows, below), compute(g, "sub", columns, above))
    # A negative diagonal starts in a lower row, another one in a later column.
    start = compute(g, "sub", above, compute(g, "mul", columns, below))
    steps = g.op("Mul", g.call("sym::range", start=0, end=length), g.constant(compute(g, "add", columns, 1)))
    computed_positions = g.op("Add", steps, g.constant(start))
    return g.op("Gather", _flatten_last(g, input), computed_positions, axis=known_rank(g, input) - 2)


def _zero(g: GraphContext, like: Value) -> Value:
    return g.constant(0, g.dtype(like) or DataType.FLOAT)


@onnx_symbolic("tf::MatrixDiagPartV3")
def matrix_diag_part(
    g: GraphContext,
    input: Value,
    k: Value | None = None,
    padding_value: Value | None = None,
    align: str = "RIGHT_LEFT",
) -> Value:
    filler = _zero(g, input) if padding_value is None else padding_value
    return _read_diagonals(g, input, _diagonal_number(g, k), filler, align)


register_variant("tf::MatrixDiagPart", matrix_diag_part, k=None, padding_value=None, align=_LEFT_ALIGNED)
register_variant("tf::MatrixDiagPartV2", matrix_diag_part, align=_LEFT_ALIGNED)


@onnx_symbolic("tf::DiagPart")
def diag_part(g: GraphContext, input: Value) -> Value:
    """The diagonal of a tensor whose shape is a repeated sequence of dimensions."""
    sizes = sizes_of(g, input)
    half = sizes[: len(sizes) // 2]
    count = product(g, half)
    flat = g.call("aten::reshape", self=input, shape=[count, count])
    diagonal = _read_diagonals(g, flat, 0, _zero(g, input), _LEFT_ALIGNED)
    return g.call("aten::reshape", self=diagonal, shape=half)


def _diagonal_positions(
    g: GraphContext, rows: int, columns: int, band: tuple[int, int], align: str
) -> np.ndarray:
    """For each element of a matrix, its position in the flattened diagonals; -1 outside of them."""
    g.reserve(rows, columns)
    positions = _matrix_positions(g, rows, columns, band, align).reshape(-1)
    sources = np.full(rows * columns, -1, dtype=np.int64)
    is_present = positions >= 0
    sources[positions[is_present]] = np.flatnonzero(is_present)
    return sources.reshape(rows, columns)


def _square(g: GraphContext, diagonal: Value, filler: Value) -> Value:
    """Square matrices with a main diagonal, and `filler` elsewhere."""
    rank = known_rank(g, diagonal)
    count = g.size(diagonal, rank - 1)
    positions = g.call("sym::range", start=0, end=count)
    is_diagonal = g.op("Equal", g.op("Unsqueeze", positions, axes=[1]), positions)
    column = g.op("Unsqueeze", diagonal, axes=[rank])
    return g.call("composed::where", condition=is_diagonal, self=column, other=filler)


def _write_diagonal(
    g: GraphContext, diagonal: Value, k: Size, shape: tuple[Size, Size], background: Value
) -> Value:
    """Matrices with a diagonal, and `background` elsewhere; all sizes may be computed."""
    row, column = (g.constant(g.call("sym::range", start=0, end=size)) for size in shape)
    row = g.op("Unsqueeze", row, axes=[1])
    is_diagonal = g.op("Equal", g.op("Sub", column, row), g.constant(k))
    rank = known_rank(g, diagonal)
    last = compute(g, "sub", g.size(diagonal, rank - 1), 1)
    # Elements outside of the diagonal read any of its elements, which the mask excludes.
    position = g.call("sym::min", a=g.call("sym::min", a=row, b=column), b=last)
    gathered = g.op("Gather", diagonal, position, axis=rank - 1)
    return g.call("composed::where", condition=is_diagonal, self=gathered, other=background)


def _matrix(
    g: GraphContext, diagonal: Value, k: Size | Band, shape: tuple[Size, Size], filler: Value, align: str
) -> Value:
    rank = known_rank(g, diagonal)
    longest = static_size(g, diagonal, rank - 1)
    if k == 0 and shape == (-1, -1):
        return _square(g, diagonal, filler)
    rows, columns = shape
    constant_band = _constant_band(k)
    if longest is None or constant_band is None or isinstance(rows, Value) or isinstance(columns, Value):
        band = k if isinstance(k, tuple) else (k, k)
        sizes = _computed_sizes_of_matrix(g, g.size(diagonal, rank - 1), band, shape)
        if not isinstance(k, tuple):
            return _write_diagonal(g, diagonal, k, sizes, filler)
        if constant_band is not None:
            return write_band(g, diagonal, k, sizes, filler, align)
        count = count_diagonals(g, k)
        diagonals = g.op("Reshape", diagonal, g.stack([-1, count, g.size(diagonal, rank - 1)]))
        matrices = write_band(g, set_shape(diagonals, [None] * 3), k, sizes, filler, align)
        # A band of one diagonal has no dimension for their number.
        end = compute(g, "sub", rank - 1, compute(g, "min", compute(g, "sub", count, 1), 1))
        batch = _leading(g, g.op("Shape", diagonal), end)
        return _rank_lost(g, matrices, [batch, *sizes_of(g, matrices)[-2:]])
    rows, columns = _sizes_of_matrix(longest, constant_band, (rows, columns))
    dims = 2 if isinstance(k, tuple) else 1
    return _gather_positions(
        g,
        _flatten_last(g, diagonal, dims),
        _diagonal_positions(g, rows, columns, constant_band, align),
        filler,
    )


def _computed_sizes_of_matrix(
    g: GraphContext, length: Size, band: Band, shape: tuple[Size, Size]
) -> tuple[Size, Size]:
    """Like `_sizes_of_matrix`, where sizes or diagonals are computed; a computed size may be -1."""
    # The longest diagonal is the one that is nearest to the main one.
    least = (
        compute(g, "sub", length, compute(g, "min", band[1], 0)),
        compute(g, "add", length, compute(g, "max", band[0], 0)),
    )
    return _complete_sizes(g, least, shape)


def _complete_sizes(g: GraphContext, least: tuple[Size, Size], shape: tuple[Size, Size]) -> tuple[Size, Size]:
    """The stated sizes; the least ones, or a square, in place of -1."""
    square = compute(g, "max", *least)
    rows, columns = shape
    completed = []
    for size, opposite_size, least_size in ((rows, columns, least[0]), (columns, rows, least[1])):
        # -1 leaves a size out; without both sizes the matrix is square.
        default = _if_negative(g, opposite_size, square, least_size)
        completed.append(_if_negative(g, size, default, size))
    return completed[0], completed[1]


def _if_negative(g: GraphContext, size: Size, negative: Size, non_negative: Size) -> Size:
    if isinstance(size, Value):
        return g.call("sym::ite", cond=g.call("sym::lt", a=size, b=0), a=negative, b=non_negative)
    return negative if size < 0 else non_negative


def _sizes_of_matrix(longest: int, band: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """Complete the sizes of a matrix: the smallest that fit the diagonals; a square if no size is given."""
    least_rows, least_columns = longest - min(band[1], 0), longest + max(band[0], 0)
    rows, columns = shape
    if rows == columns == -1:
        rows = columns = max(least_rows, least_columns)
    return (least_rows if rows == -1 else rows), (least_columns if columns == -1 else columns)


@onnx_symbolic("tf::MatrixDiagV3")
def matrix_diag(
    g: GraphContext,
    diagonal: Value,
    k: Value | None = None,
    num_rows: Value | None = None,
    num_cols: Value | None = None,
    padding_value: Value | None = None,
    align: str = "RIGHT_LEFT",
) -> Value:
    rows = -1 if num_rows is None else number(g, num_rows)
    columns = -1 if num_cols is None else number(g, num_cols)
    filler = _zero(g, diagonal) if padding_value is None else padding_value
    return _matrix(g, diagonal, _diagonal_number(g, k), (rows, columns), filler, align)


_NO_OPERANDS = dict.fromkeys(("k", "num_rows", "num_cols", "padding_value"))
register_variant("tf::MatrixDiag", matrix_diag, **_NO_OPERANDS, align=_LEFT_ALIGNED)
register_variant("tf::MatrixDiagV2", matrix_diag, align=_LEFT_ALIGNED)


@onnx_symbolic("tf::Diag")
def diag(g: GraphContext, diagonal: Value) -> Value:
    """A tensor with the given diagonal; its shape is that of the diagonal, repeated."""
    sizes = sizes_of(g, diagonal)
    flat = g.call("aten::reshape", self=diagonal, shape=[product(g, sizes)])
    return g.call("aten::reshape", self=_square(g, flat, _zero(g, diagonal)), shape=[*sizes, *sizes])


@onnx_symbolic("tf::MatrixSetDiagV3")
def matrix_set_diag(
    g: GraphContext, input: Value, diagonal: Value, k: Value | None = None, align: str = "RIGHT_LEFT"
) -> Value:
    diagonals = _diagonal_number(g, k)
    sizes = _known_sizes(g, input)
    band = _constant_band(diagonals)
    if sizes is not None and band is not None:
        sources = _diagonal_positions(g, *sizes, band, align)
        flat = _flatten_last(g, diagonal, 2 if isinstance(diagonals, tuple) else 1)
        gathered = g.op("Gather", flat, np.maximum(sources, 0), axis=known_rank(g, flat) - 1)
        return g.call("composed::where", condition=g.constant(sources >= 0), self=gathered, other=input)
    *batch, rows, columns = sizes_of(g, input)
    if isinstance(diagonals, tuple):
        if band is None:
            diagonal = g.op("Reshape", diagonal, g.stack([*batch, count_diagonals(g, diagonals), -1]))
            diagonal = set_shape(diagonal, [None] * (len(batch) + 2))
        return write_band(g, diagonal, diagonals, (rows, columns), input, align)
    return _write_diagonal(g, diagonal, diagonals, (rows, columns), input)


register_variant("tf::MatrixSetDiag", matrix_set_diag, k=None, align=_LEFT_ALIGNED)
register_variant("tf::MatrixSetDiagV2", matrix_set_diag, align=_LEFT_ALIGNED)


@onnx_symbolic("tf::MatrixBandPart")
def matrix_band_part(g: GraphContext, input: Value, num_lower: Value, num_upper: Value) -> Value:
    """Set elements outside of a band to 0; `num_lower` and `num_upper` count diagonals, -1 counts all."""
    below, above = integers(g, num_lower), integers(g, num_upper)
    if below is None or above is None or g.dtype(input) == DataType.BOOL:
        return _masked_band(g, input, number(g, num_lower), number(g, num_upper))
    if above[0] >= 0:
        input = g.call("aten::tril", input, above[0])
    return g.call("aten::triu", input, -below[0]) if below[0] >= 0 else input


def _masked_band(g: GraphContext, input: Value, below: Size, above: Size) -> Value:
    rows, columns = sizes_of(g, input)[-2:]
    row_numbers, column_numbers = (g.call("sym::range", start=0, end=size) for size in (rows, columns))
    distance = g.op("Sub", g.op("Unsqueeze", row_numbers, axes=[1]), column_numbers)
    limits: Sequence[tuple[Value, Size]] = ((distance, below), (g.op("Neg", distance), above))
    is_inside = None
    for offset, limit in limits:
        bound = g.constant(limit, DataType.INT64)
        is_within = g.op("Or", g.op("Not", g.op("Greater", offset, bound)), g.op("Less", bound, 0))
        is_inside = is_within if is_inside is None else g.op("And", is_inside, is_within)
    assert is_inside is not None
    return g.call("composed::where", condition=is_inside, self=input, other=_zero(g, input))

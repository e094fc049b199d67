"""Diagonals of matrices: reads, writes, construction; bands."""

from collections.abc import Sequence

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of, static_size
from .._common import constant_integer, constant_integers, integers, number

_LEFT_ALIGNED = "LEFT_LEFT"
"""The alignment of the diagonals in the operators before version 3, which have no attribute for it."""


def _range_of(g: GraphContext, k: Value | None) -> tuple[int, int]:
    """The lowest and the highest diagonal; None stands for the main diagonal."""
    if k is None:
        return 0, 0
    diagonals = constant_integers(g, k, "k")
    if len(diagonals) not in (1, 2) or diagonals[0] > diagonals[-1]:
        raise g.refuse(f"'k' must be one number, or two in order, not {diagonals}")
    return diagonals[0], diagonals[-1]


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


def _read_diagonals(g: GraphContext, input: Value, band: tuple[int, int], filler: Value, align: str) -> Value:
    sizes = _known_sizes(g, input)
    single = band[0] == band[1]
    if sizes is not None:
        positions = _matrix_positions(g, *sizes, band, align)
        return _gather_positions(g, _flatten_last(g, input), positions[0] if single else positions, filler)
    if not single:
        raise g.refuse("the sizes of the matrices must be known for several diagonals")
    k = band[0]
    rows, columns = sizes_of(g, input)[-2:]
    length = compute(g, "min", compute(g, "add", rows, min(k, 0)), compute(g, "sub", columns, max(k, 0)))
    start = compute(g, "mul", columns, -k) if k < 0 else k
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
    return _read_diagonals(g, input, _range_of(g, k), filler, align)


register_variant("tf::MatrixDiagPart", matrix_diag_part, k=None, padding_value=None, align=_LEFT_ALIGNED)
register_variant("tf::MatrixDiagPartV2", matrix_diag_part, align=_LEFT_ALIGNED)


@onnx_symbolic("tf::DiagPart")
def diag_part(g: GraphContext, input: Value) -> Value:
    """The diagonal of a tensor whose shape is a repeated sequence of dimensions."""
    sizes = sizes_of(g, input)
    half = sizes[: len(sizes) // 2]
    count = product(g, half)
    flat = g.call("aten::reshape", self=input, shape=[count, count])
    diagonal = _read_diagonals(g, flat, (0, 0), _zero(g, input), _LEFT_ALIGNED)
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


def _matrix(
    g: GraphContext, diagonal: Value, band: tuple[int, int], shape: tuple[int, int], filler: Value, align: str
) -> Value:
    rank = known_rank(g, diagonal)
    longest = static_size(g, diagonal, rank - 1)
    if band == (0, 0) and shape == (-1, -1):
        return _square(g, diagonal, filler)
    if longest is None:
        raise g.refuse("the length of the diagonals must be known")
    rows, columns = _sizes_of_matrix(longest, band, shape)
    dims = 1 if band[0] == band[1] else 2
    return _gather_positions(
        g, _flatten_last(g, diagonal, dims), _diagonal_positions(g, rows, columns, band, align), filler
    )


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
    rows = -1 if num_rows is None else constant_integer(g, num_rows, "num_rows")
    columns = -1 if num_cols is None else constant_integer(g, num_cols, "num_cols")
    filler = _zero(g, diagonal) if padding_value is None else padding_value
    return _matrix(g, diagonal, _range_of(g, k), (rows, columns), filler, align)


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
    band = _range_of(g, k)
    sizes = _known_sizes(g, input)
    dims = 1 if band[0] == band[1] else 2
    if sizes is not None:
        sources = _diagonal_positions(g, *sizes, band, align)
        flat = _flatten_last(g, diagonal, dims)
        gathered = g.op("Gather", flat, np.maximum(sources, 0), axis=known_rank(g, flat) - 1)
        return g.call("composed::where", condition=g.constant(sources >= 0), self=gathered, other=input)
    if band != (0, 0):
        raise g.refuse("the sizes of the matrices must be known to write several diagonals")
    rows, columns = sizes_of(g, input)[-2:]
    row_numbers, column_numbers = (g.call("sym::range", start=0, end=size) for size in (rows, columns))
    is_diagonal = g.op("Equal", g.op("Unsqueeze", row_numbers, axes=[1]), column_numbers)
    last = compute(g, "sub", compute(g, "min", rows, columns), 1)
    # Rows below the square part read any element, which the mask excludes.
    position = g.call("sym::min", a=row_numbers, b=last)
    rank = known_rank(g, diagonal)
    column = g.op("Unsqueeze", g.op("Gather", diagonal, position, axis=rank - 1), axes=[rank])
    return g.call("composed::where", condition=is_diagonal, self=column, other=input)


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

"""Several diagonals of matrices of computed sizes: read into rows, and written from rows.

A row of diagonals is as long as the longest one. A shorter diagonal stands at the left or at the right of its
row, as the alignment says. Semantics: tensorflow/core/kernels/linalg/matrix_diag_op.cc.
"""

from ....registration import DataType, GraphContext, Value
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of

Band = tuple[Size, Size]
"""The lowest and the highest diagonal, both of which may be computed."""


def _range(g: GraphContext, count: Size) -> Value:
    return g.constant(g.call("sym::range", start=0, end=count))


def count_diagonals(g: GraphContext, band: Band) -> Size:
    """The number of diagonals of a band."""
    return compute(g, "add", compute(g, "sub", band[1], band[0]), 1)


def _clip_at_zero(g: GraphContext, numbers: Value) -> tuple[Value, Value]:
    """The negative and the positive part of diagonal numbers."""
    return g.call("sym::min", a=numbers, b=0), g.call("sym::max", a=numbers, b=0)


def _lengths(g: GraphContext, rows: Size, columns: Size, below: Value, above: Value) -> Value:
    """The lengths of diagonals with these parts of their numbers."""
    return g.call(
        "sym::min",
        a=g.op("Add", below, g.constant(rows, DataType.INT64)),
        b=g.op("Sub", g.constant(columns, DataType.INT64), above),
    )


def _offsets(g: GraphContext, k: Value, at_end: Value, align: str) -> Value:
    """The first position of each diagonal in its row: 0, or where it ends with the row."""
    is_left_above, is_left_below = (part == "LEFT" for part in align.split("_"))
    offset = at_end
    if is_left_above:
        offset = g.op("Where", g.op("Less", k, 0), offset, g.constant(0))
    if is_left_below:
        offset = g.op("Where", g.op("Greater", k, 0), offset, g.constant(0))
    return offset


def read_band(g: GraphContext, input: Value, band: Band, filler: Value, align: str) -> Value:
    """The diagonals of matrices, highest first, with `filler` in the remaining elements."""
    rank = known_rank(g, input)
    *batch, rows, columns = sizes_of(g, input)
    numbers = g.op("Sub", g.constant(band[1], DataType.INT64), _range(g, count_diagonals(g, band)))
    k = g.op("Unsqueeze", numbers, axes=[1])
    below, above = _clip_at_zero(g, k)
    length = _lengths(g, rows, columns, below, above)
    # FLOAT holds every length, and not all opsets reduce INT64.
    longest = g.cast(
        g.op("ReduceMax", g.cast(length, DataType.FLOAT), axes=[0, 1], keepdims=0), DataType.INT64
    )
    step = g.op("Sub", _range(g, longest), _offsets(g, k, g.op("Sub", longest, length), align))
    is_inside = g.op("And", g.op("Not", g.op("Less", step, 0)), g.op("Less", step, length))
    row = g.op("Mul", g.op("Sub", step, below), g.constant(columns, DataType.INT64))
    position = g.op("Add", row, g.op("Add", step, above))
    # Padding reads the first element, which the filler replaces.
    position = g.op("Where", is_inside, position, g.constant(0))
    flat = g.call("aten::reshape", self=input, shape=[*batch, compute(g, "mul", rows, columns)])
    gathered = g.op("Gather", flat, position, axis=rank - 2)
    return g.call("composed::where", condition=is_inside, self=gathered, other=filler)


def write_band(
    g: GraphContext, diagonals: Value, band: Band, shape: tuple[Size, Size], background: Value, align: str
) -> Value:
    """Matrices with the diagonals, highest first, and `background` elsewhere."""
    rank = known_rank(g, diagonals)
    rows, columns = shape
    *batch, count, longest = sizes_of(g, diagonals)
    row, column = g.op("Unsqueeze", _range(g, rows), axes=[1]), _range(g, columns)
    k = g.op("Sub", column, row)
    lowest, highest = (g.constant(number, DataType.INT64) for number in band)
    is_inside = g.op("And", g.op("Not", g.op("Less", k, lowest)), g.op("Not", g.op("Greater", k, highest)))
    length = _lengths(g, rows, columns, *_clip_at_zero(g, k))
    offset = _offsets(g, k, g.op("Sub", g.constant(longest, DataType.INT64), length), align)
    # The step along a diagonal is the smaller index.
    step = g.op("Add", g.call("sym::min", a=row, b=column), offset)
    position = g.op("Add", g.op("Mul", g.op("Sub", highest, k), g.constant(longest, DataType.INT64)), step)
    position = g.op("Where", is_inside, position, g.constant(0))
    flat = g.call("aten::reshape", self=diagonals, shape=[*batch, product(g, [count, longest])])
    gathered = g.op("Gather", flat, position, axis=rank - 2)
    return g.call("composed::where", condition=is_inside, self=gathered, other=background)

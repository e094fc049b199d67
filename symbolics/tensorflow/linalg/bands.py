"""Several diagonals of matrices of computed sizes: read into rows, and written from rows.

A row of diagonals is as long as the longest one. A shorter diagonal stands at the left or at the right of its
row, as the alignment says. Semantics: tensorflow/core/kernels/linalg/matrix_diag_op.cc.
"""

from ....registration import DataType, GraphContext, Value
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of

Band = tuple[int, int]
"""The lowest and the highest diagonal."""


def _range(g: GraphContext, count: Size) -> Value:
    return g.constant(g.call("sym::range", start=0, end=count))


def _length(g: GraphContext, rows: Size, columns: Size, k: int) -> Size:
    return compute(g, "min", compute(g, "add", rows, min(k, 0)), compute(g, "sub", columns, max(k, 0)))


def read_band(g: GraphContext, input: Value, band: Band, filler: Value, align: str) -> Value:
    """The diagonals of matrices, highest first, with `filler` in the remaining elements."""
    rank = known_rank(g, input)
    *batch, rows, columns = sizes_of(g, input)
    numbers = range(band[1], band[0] - 1, -1)
    # A constant of the file states the band, and each diagonal takes several nodes.
    g.reserve(len(numbers), 64)
    lengths = {k: _length(g, rows, columns, k) for k in numbers}
    longest = lengths[band[1]]
    for length in lengths.values():
        longest = compute(g, "max", longest, length)
    steps = _range(g, longest)
    is_left_above, is_left_below = (part == "LEFT" for part in align.split("_"))
    positions: list[Value] = []
    masks: list[Value] = []
    for k in numbers:
        length = g.constant(lengths[k], DataType.INT64)
        is_left = (k >= 0 and is_left_above) or (k <= 0 and is_left_below)
        offset = 0 if is_left else compute(g, "sub", longest, lengths[k])
        step = g.op("Sub", steps, g.constant(offset, DataType.INT64))
        is_inside = g.op("And", g.op("Not", g.op("Less", step, 0)), g.op("Less", step, length))
        row = g.op("Mul", g.op("Add", step, max(-k, 0)), g.constant(columns, DataType.INT64))
        position = g.op("Add", row, g.op("Add", step, max(k, 0)))
        # Padding reads the first element, which the filler replaces.
        positions.append(g.op("Unsqueeze", g.op("Where", is_inside, position, g.constant(0)), axes=[0]))
        masks.append(g.op("Unsqueeze", is_inside, axes=[0]))
    flat = g.call("aten::reshape", self=input, shape=[*batch, compute(g, "mul", rows, columns)])
    gathered = g.op("Gather", flat, g.op("Concat", *positions, axis=0), axis=rank - 2)
    mask = g.op("Concat", *masks, axis=0)
    return g.call("composed::where", condition=mask, self=gathered, other=filler)


def write_band(
    g: GraphContext,
    diagonals: Value,
    band: Band,
    shape: tuple[Size, Size],
    background: Value,
    align: str,
) -> Value:
    """Matrices with the diagonals, highest first, and `background` elsewhere."""
    rank = known_rank(g, diagonals)
    rows, columns = shape
    *batch, count, longest = sizes_of(g, diagonals)
    row, column = g.op("Unsqueeze", _range(g, rows), axes=[1]), _range(g, columns)
    k = g.op("Sub", column, row)
    is_inside = g.op("And", g.op("Not", g.op("Less", k, band[0])), g.op("Not", g.op("Greater", k, band[1])))
    below, above = g.call("sym::min", a=k, b=0), g.call("sym::max", a=k, b=0)
    length = g.call(
        "sym::min",
        a=g.op("Add", below, g.constant(rows, DataType.INT64)),
        b=g.op("Sub", g.constant(columns, DataType.INT64), above),
    )
    at_end = g.op("Sub", g.constant(longest, DataType.INT64), length)
    is_left_above, is_left_below = (part == "LEFT" for part in align.split("_"))
    offset = at_end
    if is_left_above:
        offset = g.op("Where", g.op("Less", k, 0), offset, g.constant(0))
    if is_left_below:
        offset = g.op("Where", g.op("Greater", k, 0), offset, g.constant(0))
    # The step along a diagonal is the smaller index.
    step = g.op("Add", g.call("sym::min", a=row, b=column), offset)
    position = g.op("Add", g.op("Mul", g.op("Sub", band[1], k), g.constant(longest, DataType.INT64)), step)
    position = g.op("Where", is_inside, position, g.constant(0))
    flat = g.call("aten::reshape", self=diagonals, shape=[*batch, product(g, [count, longest])])
    gathered = g.op("Gather", flat, position, axis=rank - 2)
    return g.call("composed::where", condition=is_inside, self=gathered, other=background)

"""Selection by condition and order: where, masks, triangles, nonzero, one_hot, searchsorted."""

from typing import Any

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.integers import widen_integers
from ....compositions.size_arithmetic import axis, known_rank, where_true


@onnx_symbolic("aten::where")
def where(
    g: GraphContext, condition: Value, self: Value | Number | None = None, other: Value | Number | None = None
) -> Value | list[Value]:
    """With a condition only: the positions of true elements, a tensor for each dimension."""
    if self is None or other is None:
        return g.call("aten::nonzero_numpy", self=condition)
    mask = g.cast(condition, DataType.BOOL)
    if isinstance(self, Value) or isinstance(other, Value):
        return g.call("composed::where", condition=mask, self=self, other=other)
    dtype = g.expected[0].dtype if g.expected else None
    return g.op("Where", mask, g.constant(self, dtype), g.constant(other, dtype))


@onnx_symbolic("composed::where")
def composed_where(g: GraphContext, condition: Value, self: Value | Number, other: Value | Number) -> Value:
    """Where; logical operators for booleans, because runtimes lack boolean Where at some opsets.

    Integers without a kernel are cast to INT32, which represents them.
    """
    values = [operand for operand in (self, other) if isinstance(operand, Value)]
    dtypes = {g.dtype(operand) for operand in values}
    narrow = next(iter(dtypes), None)
    if narrow is not None and len(dtypes) == 1 and not g.has_kernel("Where", values[0]):
        wide = [g.cast(g.constant(operand, narrow), DataType.INT32) for operand in (self, other)]
        return g.cast(g.op("Where", condition, *wide), narrow)
    if dtypes != {DataType.BOOL}:
        return g.op("Where", condition, self, other)
    first, second = g.constant(self, DataType.BOOL), g.constant(other, DataType.BOOL)
    return g.op("Or", g.op("And", condition, first), g.op("And", g.op("Not", condition), second))


@onnx_symbolic("aten::masked_fill")
def masked_fill(g: GraphContext, self: Value, mask: Value, value: Value | Number) -> Value:
    dtype = g.dtype(self)
    if dtype is not None and (isinstance(value, Value) or dtype == DataType.BOOL):
        value = g.constant(value, dtype)
    return g.call("composed::where", condition=g.cast(mask, DataType.BOOL), self=value, other=self)


@onnx_symbolic("aten::masked_select")
def masked_select(g: GraphContext, self: Value, mask: Value) -> Value:
    data, wide_mask = g.call_outputs("aten::broadcast_tensors", tensors=[self, mask])
    positions = where_true(g, g.op("Reshape", wide_mask, [-1]))
    return g.op("Gather", g.op("Reshape", data, [-1]), positions)


@onnx_symbolic(["aten::nonzero", "aten::argwhere"])
def nonzero(g: GraphContext, self: Value) -> Value:
    """A row for each nonzero element; a zero-dim tensor gives rows without columns."""
    if known_rank(g, self) == 0:
        positions = _not_zero(g, g.op("Reshape", self, [1]))
        # The column of the added dimension is removed again.
        return g.op("Slice", g.op("Transpose", positions, perm=[1, 0]), starts=[0], ends=[0], axes=[1])
    return g.op("Transpose", _not_zero(g, self), perm=[1, 0])


def _not_zero(g: GraphContext, self: Value) -> Value:
    """NonZero, on booleans if there is no kernel for the element type."""
    return g.op("NonZero", self if g.has_kernel("NonZero", self) else g.cast(self, DataType.BOOL))


@onnx_symbolic("aten::nonzero_static")
def nonzero_static(g: GraphContext, self: Value, size: int | Value, fill_value: int = -1) -> Value:
    """The first `size` rows, padded with the fill value."""
    rank = known_rank(g, self)
    if rank == 0:
        return g.call("composed::full", size=[size, 0], fill_value=fill_value, dtype=DataType.INT64)
    fill = g.call("composed::full", size=[size, rank], fill_value=fill_value, dtype=DataType.INT64)
    # With as many fill rows as requested there are always enough to cut from.
    rows = g.op("Concat", g.call("aten::nonzero", self=self), fill, axis=0)
    return g.call("aten::slice", self=rows, dim=0, start=0, end=size)


@onnx_symbolic("aten::masked_scatter")
def masked_scatter(g: GraphContext, self: Value, mask: Value, source: Value) -> Value:
    """True elements of the mask take the elements of the source in order."""
    data, wide_mask = g.call_outputs("aten::broadcast_tensors", tensors=[self, mask])
    flat = g.op("Reshape", g.cast(wide_mask, DataType.BOOL), [-1])
    # The running count of true elements numbers the source's elements.
    number = g.op("Sub", g.call("aten::cumsum", self=g.cast(flat, DataType.INT64), dim=0), 1)
    # An additional element to read if none is selected.
    spare = g.call("composed::full", size=[1], fill_value=0, dtype=g.dtype(source) or DataType.FLOAT)
    elements = g.op("Concat", g.op("Reshape", source, [-1]), spare, axis=0)
    number = g.op("Where", flat, number, 0)
    result = g.call(
        "composed::where",
        condition=flat,
        self=g.op("Gather", elements, number),
        other=g.op("Reshape", data, [-1]),
    )
    return g.call("aten::view_as", self=result, other=data)


@onnx_symbolic("aten::nonzero_numpy")
def nonzero_numpy(g: GraphContext, self: Value) -> list[Value]:
    rank = known_rank(g, self)
    if rank < 2:
        mask = g.cast(self, DataType.BOOL)
        return [where_true(g, mask if rank else g.op("Reshape", mask, [1]))]
    rows = _not_zero(g, self)
    return [
        g.op("Squeeze", row, axes=[0]) for row in g.op("Split", rows, axis=0, split=[1] * rank, outputs=rank)
    ]


def _triangle(g: GraphContext, self: Value, diagonal: int | Value, upper: bool) -> Value:
    result = g.op("Trilu", widen_integers(g, self), g.constant(diagonal), upper=int(upper))
    return result if self.dtype is None else g.cast(result, self.dtype)


@onnx_symbolic("aten::tril")
def tril(g: GraphContext, self: Value, diagonal: int | Value = 0) -> Value:
    return _triangle(g, self, diagonal, upper=False)


@onnx_symbolic("aten::triu")
def triu(g: GraphContext, self: Value, diagonal: int | Value = 0) -> Value:
    return _triangle(g, self, diagonal, upper=True)


@onnx_symbolic("aten::diff")
def diff(
    g: GraphContext,
    self: Value,
    n: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value:
    """Differences of neighbours, n times; for booleans, whether they differ."""
    if n == 0:
        return self
    dimension = axis(g, self, dim)
    pieces = [piece for piece in (prepend, self, append) if piece is not None]
    self = g.call("aten::cat", tensors=pieces, dim=dimension)
    for _ in range(n):
        after = g.call("aten::slice", self=self, dim=dimension, start=1)
        before = g.call("aten::slice", self=self, dim=dimension, end=-1)
        self = g.op("Xor" if g.dtype(self) == DataType.BOOL else "Sub", after, before)
    return self


@onnx_symbolic("aten::one_hot")
def one_hot(g: GraphContext, self: Value, num_classes: int | Value = -1) -> Value:
    if isinstance(num_classes, int) and num_classes < 0:
        raise g.refuse("the number of classes depends on the data: pass num_classes")
    # OneHot begins at opset 9.
    if not g.has("OneHot"):
        classes = g.call("sym::range", start=0, end=num_classes)
        column = g.op("Unsqueeze", self, axes=[known_rank(g, self)])
        return g.cast(g.op("Equal", column, classes), DataType.INT64)
    depth = g.constant(num_classes, DataType.INT64)
    depth = g.op("Reshape", depth, [1]) if g.rank(depth) != 1 else depth
    if g.rank(self) == 0:
        return g.op("Squeeze", g.op("OneHot", g.op("Reshape", self, [1]), depth, [0, 1]), axes=[0])
    return g.op("OneHot", self, depth, [0, 1])


@onnx_symbolic("aten::bucketize")
def bucketize(g: GraphContext, self: Value | Number, boundaries: Value, **options: Any) -> Value:
    return g.call("aten::searchsorted", boundaries, self, **options)


@onnx_symbolic("aten::searchsorted")
def searchsorted(
    g: GraphContext,
    sorted_sequence: Value,
    self: Value | Number,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """The number of sorted values before each value: those less than it, or from the right not above it.

    All sorted values come before NaN.
    """
    if sorter is not None:
        sorted_sequence = g.call("aten::gather", self=sorted_sequence, dim=-1, index=sorter)
    rank = known_rank(g, sorted_sequence)
    values = self if isinstance(self, Value) else g.constant(self, g.dtype(sorted_sequence))
    values = g.op("Unsqueeze", values, axes=[known_rank(g, values)])
    sequence = sorted_sequence if rank == 1 else g.op("Unsqueeze", sorted_sequence, axes=[rank - 1])
    from_right = right or side == "right"
    before = g.op("Not", g.op("Greater", sequence, values)) if from_right else g.op("Less", sequence, values)
    # Less is false for NaN, which sorts last.
    if not from_right and g.dtype(values) in dtypes.FLOATS:
        before = g.op("Or", before, g.call("aten::isnan", values))
    counts = g.op("ReduceSum", g.cast(before, DataType.INT64), axes=[-1 % known_rank(g, before)], keepdims=0)
    return g.cast(counts, DataType.INT32) if out_int32 else counts

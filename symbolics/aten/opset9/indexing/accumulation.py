"""Scatters that combine values at the same position: scatter_reduce, index_reduce, segment_reduce, put."""

import math

import onnx_ir as ir

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.list_values import loop_inputs
from ....compositions.size_arithmetic import axis, compute, known_rank, same_size, sizes_of

_UNROLLED = 4
"""Up to this many slices the steps are unrolled; more become a Loop."""

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _combine(g: GraphContext, reduction: str, current: Value, update: Value) -> Value:
    if reduction in ("max", "min"):
        return g.call(f"aten::{reduction}imum", current, update)
    # Or and And are the sum and the product of booleans.
    if g.dtype(current) == DataType.BOOL:
        return g.op("Or" if reduction == "add" else "And", current, update)
    return g.op("Add" if reduction == "add" else "Mul", current, update)


@onnx_symbolic("composed::scatter_slices")
def scatter_slices(g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """Scatter the slices of the index in sequence; positions in a slice are unique."""
    count = g.size(index, dim)

    def step(current: Value, number: Value) -> Value:
        rows = [g.op("Gather", operand, number, axis=dim) for operand in (index, src)]
        return g.call("composed::scatter_slice", current, dim, *rows, reduction)

    if isinstance(count, int) and count <= _UNROLLED:
        for number in range(count):
            self = step(self, g.constant([number]))
        return self
    carried = Value(name="held", type=ir.TensorType(self.dtype or DataType.FLOAT), shape=self.shape)

    def build(iteration: Value, keep_going: Value, current: Value) -> list[Value]:
        return [keep_going, step(current, g.op("Unsqueeze", iteration, axes=[0]))]

    body = g.subgraph(build, [*loop_inputs(), carried], "slices")
    result = g.op("Loop", g.constant(count, DataType.INT64), None, self, body=body)
    result.type, result.shape = carried.type, self.shape
    return result


@onnx_symbolic("composed::scatter_slice")
def scatter_slice(g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """A scatter of one slice with unique positions."""
    if reduction != "none":
        src = _combine(g, reduction, g.call("aten::gather", self, dim, index), src)
    return g.op("ScatterElements", self, index, src, axis=dim)


@onnx_symbolic("composed::scatter_slice", opset=8)
def scatter_slice_by_comparison(
    g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    """Below opset 9, without Scatter: compares every position along the dim with the index."""
    sizes, index_sizes = g.shape(self) or (), g.shape(index) or ()
    shorter = [
        dimension
        for dimension in range(len(index_sizes))
        if dimension != dim and not same_size(sizes[dimension], index_sizes[dimension])
    ]
    return _write_where_equal(g, shorter, self, dim, index, src, reduction)


def _write_where_equal(
    g: GraphContext, shorter: list[int], self: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    """Write to the part of the tensor that the index covers; concatenate the parts that it does not cover."""
    if shorter:
        dimension, end = shorter[0], g.size(index, shorter[0])
        inner = g.call("aten::slice", self=self, dim=dimension, start=0, end=end)
        updated = _write_where_equal(g, shorter[1:], inner, dim, index, src, reduction)
        return g.op(
            "Concat", updated, g.call("aten::slice", self=self, dim=dimension, start=end), axis=dimension
        )
    after = known_rank(g, self) - dim - 1
    positions = g.call("sym::range", start=0, end=g.size(self, dim))
    positions = g.op("Unsqueeze", positions, axes=list(range(1, after + 1))) if after else positions
    is_selected = g.op("Equal", positions, g.cast(index, DataType.INT64))
    new = src if reduction == "none" else _combine(g, reduction, self, src)
    return g.call("composed::where", condition=is_selected, self=new, other=self)


@onnx_symbolic("composed::scatter_reduce")
def scatter_with(g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str) -> Value:
    """A scatter that combines with the existing values: `add`, `mul`, `max` or `min`.

    In FLOAT or wider, because onnxruntime's ScatterElements combines no other floats. It loses NaN, which is
    handled separately.
    """
    if not g.has("ScatterElements", reduction=reduction):
        return g.call("composed::scatter_slices", self, dim, index, src, reduction)
    result = _scatter_by_operator(g, self, dim, index, src, reduction)
    if reduction not in ("max", "min") or g.dtype(self) not in dtypes.FLOATS:
        return result
    # A second scatter marks the positions that receive a NaN.
    missing = [g.cast(g.call("aten::isnan", operand), DataType.INT32) for operand in (self, src)]
    lost = _scatter_by_operator(g, missing[0], dim, index, missing[1], "max")
    return g.op("Where", g.cast(lost, DataType.BOOL), math.nan, result)


def _scatter_by_operator(
    g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    dtype = g.dtype(self)
    if dtype == DataType.BOOL:
        integers = [g.cast(operand, DataType.INT32) for operand in (self, src)]
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
        return g.cast(
            g.call("composed::scatter_reduce", integers[0], dim, index, integers[1], reduction), dtype
        )
    if dtype in dtypes.HALVES:
        self, src = g.cast(self, DataType.FLOAT), g.cast(src, DataType.FLOAT)
    result = g.op("ScatterElements", self, index, src, axis=dim, reduction=reduction)
    return g.cast(result, dtype) if dtype in dtypes.HALVES else result


@onnx_symbolic("composed::accumulate_rows")
def accumulate_rows(g: GraphContext, self: Value, index: Value, values: Value) -> Value:
    """Add each row of `values` to the row of `self` that the index names.

    Computed in FLOAT or wider, because onnxruntime's ScatterND adds no narrower floats.
    """
    if g.has("ScatterND", reduction="add"):
        dtype = g.dtype(self)
        if dtype in dtypes.HALVES:
            self, values = g.cast(self, DataType.FLOAT), g.cast(values, DataType.FLOAT)
        result = g.op("ScatterND", self, g.op("Unsqueeze", index, axes=[1]), values, reduction="add")
        return g.cast(result, dtype) if dtype in dtypes.HALVES else result
    rank = known_rank(g, values)
    if rank > 1:
        # The fallback scatters single elements, so a row's index is repeated for each of them.
        index = g.op("Expand", g.op("Unsqueeze", index, axes=list(range(1, rank))), g.op("Shape", values))
    return g.call("composed::scatter_reduce", self, 0, index, values, "add")


def _neutral(dtype: DataType, reduce: str) -> Number:
    """The neutral element of a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    low, high = (False, True) if dtype == DataType.BOOL else dtypes.limits(dtype)
    if dtype in dtypes.FLOATS:
        low, high = float("-inf"), float("inf")
    return low if reduce == "amax" else high


@onnx_symbolic("aten::scatter_reduce")
def scatter_reduce(
    g: GraphContext, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    """The mean is the sum divided by the count, rounded down for integers."""
    if reduce not in (*_REDUCTIONS, "mean"):
        raise g.refuse(f"ONNX has no scatter with the reduction '{reduce}'")
    dtype = g.dtype(self)
    start = self
    if not include_self:
        if dtype is None:
            raise g.refuse(f"the element type must be known for reduce='{reduce}' with include_self=False")
        # Only positions in the index are replaced by the neutral element; the others keep their values.
        start = g.call("aten::scatter", self=self, dim=dim, index=index, value=_neutral(dtype, reduce))
    if reduce != "mean":
        return g.call("aten::scatter", self=start, dim=dim, index=index, src=src, reduce=reduce)
    total = g.call("aten::scatter", self=start, dim=dim, index=index, src=src, reduce="sum")
    counts = g.call("aten::full_like", self, int(include_self), DataType.INT64)
    unit_counts = g.call("aten::full_like", index, 1, DataType.INT64)
    counts = g.call("aten::scatter", self=counts, dim=dim, index=index, src=unit_counts, reduce="sum")
    # Positions that nothing is scattered to keep their value: 0 / 1, or x / 1.
    counts = g.call("aten::maximum", counts, g.constant(1))
    rounding = None if dtype in dtypes.FLOATS else "floor"
    return g.call("aten::div", total, g.cast(counts, dtype or DataType.FLOAT), rounding_mode=rounding)


@onnx_symbolic("aten::index_reduce")
def index_reduce(
    g: GraphContext,
    self: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    include_self: bool = True,
) -> Value:
    """A scatter_reduce with the same index for a whole row."""
    if known_rank(g, self) == 0:
        self_, source_ = (g.op("Reshape", operand, [1]) for operand in (self, source))
        result = g.call("aten::index_reduce", self_, 0, index, source_, reduce, include_self)
        return g.op("Reshape", result, g.constant([], DataType.INT64))
    dimension, rank = axis(g, self, dim), known_rank(g, self)
    if g.rank(index) == 0:
        index = g.op("Unsqueeze", index, axes=[0])
    if known_rank(g, source) == 0:
        source = g.op("Reshape", source, [1] * rank)
    remaining_axes = [i for i in range(rank) if i != dimension]
    positions = g.op("Unsqueeze", index, axes=remaining_axes) if remaining_axes else index
    positions = g.call("aten::expand", self=positions, size=sizes_of(g, source))
    reduce = _REDUCTIONS_OF_INDEX.get(reduce, reduce)
    return g.call("aten::scatter_reduce", self, dimension, positions, source, reduce, include_self)


_REDUCTIONS_OF_INDEX = {"multiply": "prod"}


@onnx_symbolic("aten::put")
def put(g: GraphContext, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """`put` writes to the flattened tensor."""
    flat = g.op("Reshape", self, [-1])
    positions, values = g.op("Reshape", index, [-1]), g.op("Reshape", source, [-1])
    written = g.call("aten::index_put", self=flat, indices=[positions], values=values, accumulate=accumulate)
    return g.call("aten::reshape", self=written, shape=sizes_of(g, self))


def _segments(g: GraphContext, data: Value, offsets: Value, dimension: int) -> Value:
    """The segment of each slice of the data; slices after the last segment belong to none."""
    positions = g.call("sym::range", start=0, end=g.size(data, dimension))
    last = known_rank(g, offsets) - 1
    started = g.call("aten::le", g.op("Unsqueeze", offsets, axes=[last + 1]), positions)
    return g.op("Sub", g.op("ReduceSum", g.cast(started, DataType.INT64), axes=[last], keepdims=0), 1)


@onnx_symbolic("aten::segment_reduce")
def segment_reduce(
    g: GraphContext,
    data: Value,
    reduce: str,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    initial: Number | None = None,
) -> Value:
    """Reductions of consecutive slices; an empty segment gives `initial`, or the neutral element."""
    if indices is not None or (lengths is None) == (offsets is None):
        raise g.refuse("either lengths or offsets must be given")
    if offsets is None:
        assert lengths is not None
        segment_lengths = g.cast(lengths, DataType.INT64)
        ends = g.call("aten::cumsum", segment_lengths, known_rank(g, segment_lengths) - 1)
        first = g.op(
            "Sub",
            g.call("aten::slice", self=ends, dim=-1, end=1),
            g.call("aten::slice", self=segment_lengths, dim=-1, end=1),
        )
        offsets = g.op("Concat", first, ends, axis=known_rank(g, segment_lengths) - 1)
    offsets = g.cast(offsets, DataType.INT64)
    dimension = axis
    segment = _segments(g, data, offsets, dimension)
    count = compute(g, "sub", g.size(offsets, -1), 1)
    rank = known_rank(g, data)
    trailing = rank - dimension - 1
    segment = g.op("Unsqueeze", segment, axes=list(range(dimension + 1, rank))) if trailing else segment
    sizes = sizes_of(g, data)
    index = g.call("aten::expand", self=segment, size=sizes)
    dtype = g.dtype(data) or DataType.FLOAT
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    start: Number = initial if initial is not None else _neutral(dtype, name)
    # An additional segment takes the slices that belong to none.
    target = [*sizes[:dimension], compute(g, "add", count, 1), *sizes[dimension + 1 :]]
    initial_values = g.call("composed::full", size=target, fill_value=start, dtype=dtype)
    combine = "sum" if name == "mean" else name
    total = g.call("aten::scatter", self=initial_values, dim=dimension, index=index, src=data, reduce=combine)
    total = g.call("aten::slice", self=total, dim=dimension, start=0, end=count)
    if name != "mean":
        return total
    after = g.call("aten::slice", self=offsets, dim=-1, start=1)
    before = g.call("aten::slice", self=offsets, dim=-1, end=-1)
    length = g.op("Sub", after, before)
    length = g.op("Unsqueeze", length, axes=list(range(dimension + 1, rank))) if trailing else length
    divided = g.op("Div", total, g.cast(length, dtype))
    if initial is None:
        return divided
    # An empty segment is `initial` itself, not divided by 0.
    return g.op("Where", g.op("Equal", length, 0), total, divided)

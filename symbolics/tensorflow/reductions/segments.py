"""Reductions of rows with the same segment number: sorted segments, unsorted ones, sparse ones."""

from collections.abc import Sequence

from ....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ...compositions.integers import widen_integers
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of
from .._common import END, number, restore_dtype, set_shape

_REDUCTIONS = {"Sum": "add", "Prod": "mul", "Max": "max", "Min": "min"}


def _rows(g: GraphContext, data: Value, segment_ids: Value) -> tuple[Value, Value, list[Size]]:
    """Flatten the dimensions that the segment numbers cover; return rows, numbers and the sizes of a row."""
    rank = known_rank(g, segment_ids)
    row_sizes = sizes_of(g, data)[rank:]
    numbers = g.cast(segment_ids, DataType.INT64)
    if rank == 1:
        return data, numbers, row_sizes
    count = product(g, sizes_of(g, data)[:rank])
    rows = g.call("aten::reshape", self=data, shape=[count if isinstance(count, int) else -1, *row_sizes])
    return rows, g.op("Reshape", numbers, [-1]), row_sizes


def _restore_rows(g: GraphContext, result: Value, data: Value, rank: int) -> Value:
    """Reshape a matrix of segments to rows with the dimensions of the data from `rank` on."""
    segment_count = g.op("Slice", g.op("Shape", result), starts=[0], ends=[1], axes=[0])
    row_shape = g.op("Slice", g.op("Shape", data), starts=[rank], ends=[END], axes=[0])
    return g.op("Reshape", result, g.op("Concat", segment_count, row_shape, axis=0))


def _reduce_rows(
    g: GraphContext,
    rows: Value,
    ids: Value,
    row_sizes: Sequence[Size],
    count: Size,
    reduction: str,
    start: Number,
) -> Value:
    """Reduce the rows of each segment; an extra segment, cut off later, takes rows with negative numbers."""
    dtype = g.dtype(rows) or DataType.FLOAT
    initial = g.call(
        "composed::full", size=[compute(g, "add", count, 1), *row_sizes], fill_value=start, dtype=dtype
    )
    # A negative number selects the extra segment at the end.
    positions = g.op("Where", g.op("Less", ids, 0), g.constant(count, DataType.INT64), ids)
    if reduction == "add":
        total = g.call("composed::accumulate_rows", initial, positions, rows)
    else:
        index = (
            g.op("Unsqueeze", positions, axes=list(range(1, len(row_sizes) + 1))) if row_sizes else positions
        )
        # ScatterElements takes an index for each element, not for each row.
        index = g.op("Expand", index, g.op("Shape", rows)) if row_sizes else index
        total = g.call("composed::scatter_reduce", initial, 0, index, rows, reduction)
    return g.call("aten::slice", self=total, dim=0, start=0, end=count)


def _counts(g: GraphContext, ids: Value, count: Size, row_sizes: Sequence[Size]) -> Value:
    """The number of rows in each segment, INT64, with a dimension of size 1 for each dimension of a row."""
    unit_rows = g.call("aten::ones_like", ids)
    counts = _reduce_rows(g, unit_rows, ids, [], count, "add", 0)
    return g.op("Unsqueeze", counts, axes=list(range(1, len(row_sizes) + 1))) if row_sizes else counts


def _neutral(dtype: DataType, name: str) -> Number:
    if name in ("Sum", "Prod"):
        return int(name == "Prod")
    # A segment without rows keeps this number, as in TensorFlow's unsorted reductions.
    low, high = dtypes.limits(dtype)
    return low if name == "Max" else high


def _reduce_segments(g: GraphContext, name: str, data: Value, segment_ids: Value, count: Size) -> Value:
    dtype = g.dtype(data) or DataType.FLOAT
    rows, ids, row_sizes = _rows(g, widen_integers(g, data), segment_ids)
    return restore_dtype(
        g, _reduce_rows(g, rows, ids, row_sizes, count, _REDUCTIONS[name], _neutral(dtype, name)), dtype
    )


def _register_unsorted(name: str) -> None:
    @onnx_symbolic(f"tf::UnsortedSegment{name}")
    def reduce_unsorted(g: GraphContext, data: Value, segment_ids: Value, num_segments: Value) -> Value:
        """Rows with a negative number are ignored."""
        if g.rank(segment_ids) is None:
            # The number of dimensions that the segment numbers cover is computed.
            covered = g.op("Size", g.op("Shape", segment_ids))
            sizes = set_shape(g.op("Shape", data), [None])
            row_sizes = g.call("aten::slice", self=sizes, dim=0, start=covered, end=END)
            count = g.op("Reshape", g.op("Size", segment_ids), [1])
            matrix_sizes = g.op("Concat", count, g.op("ReduceProd", row_sizes, axes=[0], keepdims=1), axis=0)
            rows = set_shape(g.op("Reshape", data, matrix_sizes), [None, None])
            ids = set_shape(g.op("Reshape", segment_ids, [-1]), [None])
            result = reduce_unsorted(g, rows, ids, num_segments)
            segment_count = g.op("Slice", g.op("Shape", result), starts=[0], ends=[1], axes=[0])
            return g.op("Reshape", result, g.op("Concat", segment_count, row_sizes, axis=0))
        if g.rank(data) is None:
            rank = known_rank(g, segment_ids)
            rows = set_shape(g.op("Flatten", data, axis=rank), [None, None])
            ids = segment_ids if rank == 1 else set_shape(g.op("Reshape", segment_ids, [-1]), [None])
            return _restore_rows(g, reduce_unsorted(g, rows, ids, num_segments), data, rank)
        return _reduce_segments(g, name, data, segment_ids, number(g, num_segments))


def _as_vector(g: GraphContext, ids: Value) -> Value:
    # Sorted segment numbers have one dimension, also where it is not known.
    return ids if g.rank(ids) == 1 else set_shape(g.op("Reshape", ids, [-1]), [None])


def _number_of_segments(g: GraphContext, segment_ids: Value) -> Size:
    """The number of sorted segments: the last segment number plus 1."""
    ids = g.cast(segment_ids, DataType.INT64)
    # Without rows the maximum is -1, so there are no segments.
    all_ids = g.op("Concat", g.constant([-1]), ids, axis=0)
    return g.op("Add", g.op("ReduceMax", all_ids, axes=[0], keepdims=0), 1)


def _register_sorted(name: str) -> None:
    @onnx_symbolic(f"tf::Segment{name}")
    def of_sorted(g: GraphContext, data: Value, segment_ids: Value) -> Value:
        """Segments without rows are 0, or 1 for a product."""
        if g.rank(data) is None:
            rows = set_shape(g.op("Flatten", data, axis=1), [None, None])
            return _restore_rows(g, of_sorted(g, rows, _as_vector(g, segment_ids)), data, 1)
        count = _number_of_segments(g, segment_ids)
        result = _reduce_segments(g, name, data, segment_ids, count)
        if name in ("Sum", "Prod"):
            return result
        _, ids, row_sizes = _rows(g, data, segment_ids)
        empty = g.op("Less", _counts(g, ids, count, row_sizes), 1)
        zero = g.constant(0, g.dtype(data) or DataType.FLOAT)
        return g.call("composed::where", condition=empty, self=zero, other=result)

    @onnx_symbolic(f"tf::Segment{name}V2")
    def of_stated_number(g: GraphContext, data: Value, segment_ids: Value, num_segments: Value) -> Value:
        """Segments without rows have the same number as in unsorted reductions."""
        return g.call(f"tf::UnsortedSegment{name}", data, _as_vector(g, segment_ids), num_segments)


for _name in _REDUCTIONS:
    _register_unsorted(_name)
    _register_sorted(_name)


def _mean(
    g: GraphContext, data: Value, segment_ids: Value, count: Size, divide_by_root: bool = False
) -> Value:
    """The sum divided by the number of rows, or by its square root; 0 for a segment without rows."""
    total = _reduce_segments(g, "Sum", data, segment_ids, count)
    dtype = g.dtype(data) or DataType.FLOAT
    _, ids, row_sizes = _rows(g, data, segment_ids)
    counts = g.call("aten::maximum", _counts(g, ids, count, row_sizes), g.constant(1))
    if dtype in dtypes.INTEGERS:
        return g.call("tf::TruncateDiv", total, g.cast(counts, dtype))
    divisor = g.cast(counts, dtype)
    return g.op("Div", total, g.op("Sqrt", divisor) if divide_by_root else divisor)


@onnx_symbolic("tf::SegmentMean")
def segment_mean(g: GraphContext, data: Value, segment_ids: Value) -> Value:
    if g.rank(data) is None:
        rows = set_shape(g.op("Flatten", data, axis=1), [None, None])
        return _restore_rows(g, segment_mean(g, rows, _as_vector(g, segment_ids)), data, 1)
    return _mean(g, data, segment_ids, _number_of_segments(g, segment_ids))


def _register_sparse(name: str) -> None:
    @onnx_symbolic(f"tf::SparseSegment{name}WithNumSegments")
    def sparse(
        g: GraphContext,
        data: Value,
        indices: Value,
        segment_ids: Value,
        num_segments: Value | None = None,
        sparse_gradient: bool = False,
    ) -> Value:
        """Reduce rows of the data, selected by the indices, in sorted segments."""
        if g.rank(data) is None:
            matrix = set_shape(g.op("Flatten", data, axis=1), [None, None])
            ids = _as_vector(g, segment_ids)
            return _restore_rows(g, sparse(g, matrix, _as_vector(g, indices), ids, num_segments), data, 1)
        count = _number_of_segments(g, segment_ids) if num_segments is None else number(g, num_segments)
        rows = g.op("Gather", data, indices, axis=0)
        if name == "Sum":
            return _reduce_segments(g, name, rows, segment_ids, count)
        return _mean(g, rows, segment_ids, count, divide_by_root=name == "SqrtN")

    register_variant(f"tf::SparseSegment{name}", sparse, num_segments=None)


for _name in ("Sum", "Mean", "SqrtN"):
    _register_sparse(_name)

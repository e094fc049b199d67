"""Segments of rows by their lengths: sums, means and maxima of embeddings, ranges, and sparse features.

Semantics: caffe2/operators/lengths_reducer_ops.cc, lengths_reducer_rowwise_8bit_ops.cc,
lengths_reducer_fused_8bit_rowwise_ops.h, lengths_reducer_fused_nbit_rowwise_ops.h, utility_ops.cc,
sparse_to_dense_op.cc and sparse_to_dense_mask_op.cc.
"""

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.row_partitions import last_of, positions_in_rows, row_ids_of, splits_of
from ..compositions.size_arithmetic import compute, known_rank, sizes_of, where_true
from ._layouts import set_shape_like

_REDUCTIONS = ("Sum", "Mean", "Max")


def _reduce(g: GraphContext, rows: Value, lengths: Value, reduction: str) -> Value:
    """Reduce the rows of each segment; a segment without rows is 0."""
    dtype = g.dtype(rows) or DataType.FLOAT
    known_rank(g, rows)
    row_sizes = sizes_of(g, rows)[1:]
    counts = g.cast(lengths, DataType.INT64)
    row_ids = row_ids_of(g, splits_of(g, counts), g.size(rows, 0))
    segments = g.size(counts, 0)
    sizes = [segments, *row_sizes]
    axes = list(range(1, len(row_sizes) + 1))
    column = g.op("Unsqueeze", counts, axes=axes) if axes else counts
    if reduction == "Max":
        least = g.call("composed::full", size=sizes, fill_value=float("-inf"), dtype=dtype)
        index = g.op("Unsqueeze", row_ids, axes=axes) if axes else row_ids
        index = g.op("Expand", index, g.op("Shape", rows)) if axes else index
        largest = g.call("composed::scatter_reduce", least, 0, index, rows, "max")
        zero = g.constant(0, dtype)
        return g.call("composed::where", condition=g.op("Equal", column, 0), self=zero, other=largest)
    zeros = g.call("composed::full", size=sizes, fill_value=0, dtype=dtype)
    total = g.call("composed::accumulate_rows", zeros, row_ids, rows)
    if reduction == "Sum":
        return total
    return g.op("Div", total, g.cast(g.call("aten::clamp_min", column, 1), dtype))


def _register_reduction(reduction: str) -> None:
    @onnx_symbolic(f"caffe2::Lengths{reduction}")
    def reduce_lengths(g: GraphContext, DATA: Value, LENGTHS: Value) -> Value:
        return _reduce(g, DATA, LENGTHS, reduction)

    @onnx_symbolic(f"caffe2::SparseLengths{reduction}")
    def reduce_sparse_lengths(g: GraphContext, DATA: Value, INDICES: Value, LENGTHS: Value) -> Value:
        return _reduce(g, g.op("Gather", DATA, INDICES, axis=0), LENGTHS, reduction)


def _weight_rows(g: GraphContext, rows: Value, weights: Value) -> Value:
    """Rows times a weight for each of them."""
    axes = list(range(1, known_rank(g, rows)))
    return g.op("Mul", rows, g.op("Unsqueeze", weights, axes=axes) if axes else weights)


def _register_fused(bits: int) -> None:
    @onnx_symbolic([f"caffe2::SparseLengths{name}Fused{bits}BitRowwise" for name in ("Sum", "Mean")])
    def reduce_fused(g: GraphContext, DATA: Value, INDICES: Value, LENGTHS: Value) -> Value:
        """Rows of integers with their scale and bias in their last bytes."""
        is_mean = g.node is not None and g.node.op_type.startswith("SparseLengthsMean")
        return _reduce(g, _gather_fused(g, DATA, INDICES, bits), LENGTHS, "Mean" if is_mean else "Sum")

    @onnx_symbolic(f"caffe2::SparseLengthsWeightedSumFused{bits}BitRowwise")
    def reduce_weighted_fused(
        g: GraphContext, DATA: Value, WEIGHTS: Value, INDICES: Value, LENGTHS: Value
    ) -> Value:
        return _reduce(g, _weight_rows(g, _gather_fused(g, DATA, INDICES, bits), WEIGHTS), LENGTHS, "Sum")


for _name in _REDUCTIONS:
    _register_reduction(_name)
for _bits in (8, 4):
    _register_fused(_bits)


def _gather_fused(g: GraphContext, data: Value, indices: Value, bits: int) -> Value:
    """Rows as FLOAT: an integer times the row's scale, plus its bias."""
    array = g.constant_value(data)
    if array is None:
        raise g.refuse("its DATA must be constant: the bytes of a row contain floating-point numbers")
    # The scale and the bias are FLOAT for 8 bits, and FLOAT16 for fewer.
    number = np.dtype(np.float32 if bits == 8 else np.float16)
    codes, parameters = np.split(array.view(np.uint8), [array.shape[1] - 2 * number.itemsize], axis=1)
    scale_and_bias = np.ascontiguousarray(parameters).view(number).astype(np.float32)
    if bits == 4:
        # The lower half of a byte comes first.
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)
    rows = g.op("Gather", g.constant(np.ascontiguousarray(codes)), indices, axis=0)
    return _scale_rows(g, rows, g.op("Gather", g.constant(scale_and_bias), indices, axis=0))


def _scale_rows(g: GraphContext, codes: Value, scale_and_bias: Value) -> Value:
    scale, bias = (
        g.op("Slice", scale_and_bias, starts=[column], ends=[column + 1], axes=[1]) for column in (0, 1)
    )
    return g.op("Add", g.op("Mul", g.cast(codes, DataType.FLOAT), scale), bias)


@onnx_symbolic("caffe2::SparseLengthsWeightedSum")
def sparse_lengths_weighted_sum(
    g: GraphContext, DATA: Value, WEIGHTS: Value, INDICES: Value, LENGTHS: Value
) -> Value:
    return _reduce(g, _weight_rows(g, g.op("Gather", DATA, INDICES, axis=0), WEIGHTS), LENGTHS, "Sum")


@onnx_symbolic("caffe2::SparseLengthsSum8BitsRowwise")
def sparse_lengths_sum_8bits(
    g: GraphContext, DATA: Value, INDICES: Value, LENGTHS: Value, scale_bias: Value
) -> Value:
    """Rows of bytes, with the scale and the bias of each row in a second tensor."""
    rows, parameters = (g.op("Gather", value, INDICES, axis=0) for value in (DATA, scale_bias))
    return _reduce(g, _scale_rows(g, rows, parameters), LENGTHS, "Sum")


@onnx_symbolic("caffe2::LengthsToRanges")
def lengths_to_ranges(g: GraphContext, lengths: Value) -> Value:
    """The start and the length of each segment."""
    counts = g.cast(lengths, DataType.INT64)
    starts = g.call("aten::slice", self=splits_of(g, counts), dim=0, start=0, end=-1)
    pairs = [g.op("Unsqueeze", column, axes=[1]) for column in (starts, counts)]
    return g.cast(g.op("Concat", *pairs, axis=1), g.dtype(lengths) or DataType.INT32)


def _places(g: GraphContext, lengths: Value) -> tuple[Value, Value]:
    """The segment of each row, and its position in the segment."""
    splits = splits_of(g, g.cast(lengths, DataType.INT64))
    row_ids = row_ids_of(g, splits, last_of(g, splits))
    return row_ids, positions_in_rows(g, splits, row_ids)


@onnx_symbolic("caffe2::LengthsRangeFill")
def lengths_range_fill(g: GraphContext, lengths: Value) -> Value:
    """The numbers from 0 of each segment."""
    return g.cast(_places(g, lengths)[1], DataType.INT32)


@onnx_symbolic("caffe2::LengthsToSegmentIds")
def lengths_to_segment_ids(g: GraphContext, lengths: Value) -> Value:
    return g.cast(_places(g, lengths)[0], DataType.INT32)


@onnx_symbolic("caffe2::GatherRanges")
def gather_ranges(g: GraphContext, DATA: Value, RANGES: Value) -> list[Value]:
    """The elements of ranges `[batch, count, 2]`, and how many there are in each batch."""
    pairs = g.op("Reshape", g.cast(RANGES, DataType.INT64), [-1, 2])
    starts, lengths = (g.op("Gather", pairs, column, axis=1) for column in (0, 1))
    range_ids, positions = _places(g, lengths)
    elements = g.op("Gather", DATA, g.op("Add", g.op("Gather", starts, range_ids, axis=0), positions), axis=0)
    all_lengths = g.op("Gather", g.cast(RANGES, DataType.INT64), 1, axis=2)
    counts = g.op("ReduceSum", all_lengths, axes=[1], keepdims=0)
    return [elements, g.cast(counts, DataType.INT32)]


@onnx_symbolic("caffe2::SparseToDense")
def sparse_to_dense(
    g: GraphContext, indices: Value, sparse_values: Value, data_to_infer_dim: Value | None = None
) -> Value:
    """Rows at their positions; rows of one position are added."""
    positions = g.cast(indices, DataType.INT64)
    if data_to_infer_dim is None:
        padded = g.op("Concat", g.constant([-1]), positions, axis=0)
        count = g.op("Add", g.op("ReduceMax", padded, axes=[0], keepdims=0), 1)
    else:
        count = g.constant(g.size(data_to_infer_dim, 0), DataType.INT64)
    dtype = g.dtype(sparse_values) or DataType.FLOAT
    zeros = g.call("composed::full", size=[count, *sizes_of(g, sparse_values)[1:]], fill_value=0, dtype=dtype)
    return g.call("composed::accumulate_rows", zeros, positions, sparse_values)


@onnx_symbolic("caffe2::BatchSparseToDense")
def batch_sparse_to_dense(
    g: GraphContext,
    lengths: Value,
    indices: Value,
    values: Value,
    output_dim: Value | None = None,
    dense_last_dim: int = -1,
    default_value: float = 0.0,
) -> Value:
    """A row of `dense_last_dim` columns for each segment, with the values at their columns."""
    width = g.size(output_dim, 1) if output_dim is not None else dense_last_dim
    if isinstance(width, int) and width < 1:
        raise g.refuse("it needs a fourth input or the argument dense_last_dim")
    row_ids, _ = _places(g, lengths)
    columns = g.cast(indices, DataType.INT64)
    # A flat index serves every opset; ScatterND with two of them begins at 11.
    flat = g.op("Add", g.op("Mul", row_ids, g.constant(width, DataType.INT64)), columns)
    dtype, rows = g.dtype(values) or DataType.FLOAT, g.size(lengths, 0)
    filled = g.call(
        "composed::full", size=[compute(g, "mul", rows, width)], fill_value=default_value, dtype=dtype
    )
    written = g.call("composed::write_rows", filled, flat, values)
    return g.call("aten::reshape", self=written, shape=[rows, width])


@onnx_symbolic("caffe2::SparseToDenseMask")
def sparse_to_dense_mask(
    g: GraphContext,
    indices: Value,
    values: Value,
    default_value: Value,
    lengths: Value | None = None,
    mask: list[int] | None = None,
    return_presence_mask: int = 0,
    max_skipped_indices: int = 50,
) -> list[Value]:
    """The value of each index in the mask, for each segment; other indices are skipped."""
    if not mask:
        raise g.refuse("it needs the argument mask")
    # An index matches at most one entry of the mask, whose position is then its column.
    numbers = g.constant(np.array(mask, np.int64))
    positions = g.cast(indices, DataType.INT64)
    matches = g.op("Equal", g.op("Unsqueeze", positions, axes=[1]), numbers)
    hits = g.cast(matches, DataType.INT64)
    columns = g.op("ReduceSum", g.op("Mul", hits, g.constant(np.arange(len(mask)))), axes=[1], keepdims=0)
    selection = where_true(g, g.op("ReduceSum", hits, axes=[1], keepdims=0))
    row_sizes = sizes_of(g, values)[1:]
    dtype = g.dtype(values) or DataType.FLOAT
    count = g.constant(len(mask), DataType.INT64)
    rows = 1 if lengths is None else g.size(lengths, 0)
    flat = columns
    if lengths is not None:
        flat = g.op("Add", g.op("Mul", _places(g, lengths)[0], count), columns)
    flat = g.op("Gather", flat, selection, axis=0)
    total = compute(g, "mul", rows, len(mask))
    base = g.op(
        "Expand",
        g.call("aten::reshape", self=default_value, shape=[1, *row_sizes]),
        g.stack([total, *row_sizes]),
    )
    written = g.call("composed::write_rows", base, flat, g.op("Gather", values, selection, axis=0))
    leading = [len(mask)] if lengths is None else [rows, len(mask)]
    result = [g.call("aten::reshape", self=written, shape=[*leading, *row_sizes])]
    if return_presence_mask:
        absent = g.call("composed::full", size=[total], fill_value=0, dtype=DataType.INT64)
        units = g.call("aten::ones_like", selection)
        presence = g.call("composed::write_rows", absent, flat, units)
        result.append(g.cast(g.call("aten::reshape", self=presence, shape=leading), DataType.BOOL))
    return [g.cast(result[0], dtype), *result[1:]]


@onnx_symbolic("caffe2::FillExamplesWithIndicator")
def fill_examples_with_indicator(g: GraphContext, data: Value, indicator: Value) -> Value:
    """The rows of the data where the indicator is true, and rows of zeros elsewhere."""
    dtype = g.dtype(data) or DataType.FLOAT
    sizes = [g.size(indicator, 0), *sizes_of(g, data)[1:]]
    zeros = g.call("composed::full", size=sizes, fill_value=0, dtype=dtype)
    rows = where_true(g, g.cast(indicator, DataType.INT64))
    return set_shape_like(g.call("composed::write_rows", zeros, rows, data), zeros)


@onnx_symbolic("caffe2::SparseLabelSplit")
def sparse_label_split(
    g: GraphContext, lengths: Value, indices: Value, values: Value, num_labels: int
) -> list[Value]:
    """The values of each label, the numbers of their examples, and the position of each value in its label.

    Semantics: caffe2/operators/label_ops.cu.
    """
    g.reserve(num_labels, 16)
    splits = splits_of(g, g.cast(lengths, DataType.INT64))
    labels = g.cast(indices, DataType.INT64)
    examples = g.cast(row_ids_of(g, splits, g.size(indices, 0)), DataType.INT32)
    by_label, ids = [], []
    positions = g.op("Mul", labels, 0)
    for label in range(num_labels):
        flags = g.cast(g.op("Equal", labels, label), DataType.INT64)
        chosen = where_true(g, flags)
        by_label.append(g.op("Gather", values, chosen, axis=0))
        ids.append(g.op("Gather", examples, chosen, axis=0))
        earlier = g.op("Sub", g.op("CumSum", flags, g.constant(0)), flags)
        positions = g.op("Add", positions, g.op("Mul", flags, earlier))
    return [*by_label, *ids, g.cast(positions, DataType.INT32)]

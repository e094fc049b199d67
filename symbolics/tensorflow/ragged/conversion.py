"""Ragged tensors as dense and sparse units, their rows, and ranges of different lengths.

Source of the semantics: tensorflow/core/kernels/ragged_*_op.cc.
"""

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.row_partitions import (
    count_per_row,
    last_of,
    lengths_of,
    longest,
    positions_in_rows,
    row_ids_of,
    splits_of,
)
from ...compositions.size_arithmetic import Size, compute, known_rank, product, sizes_of, where_true
from .._common import flatten, integers, number, range_vector, set_shape, traced_elements


def _as_splits(g: GraphContext, splits: Value) -> Value:
    """Cast splits to INT64."""
    return flatten(g, g.cast(splits, DataType.INT64))


class _Level:
    """One ragged dimension: the row of each value, its position in the row, and the length of the longest."""

    def __init__(self, g: GraphContext, splits: Value, row_ids: Value):
        self.row_ids = row_ids
        self.positions = positions_in_rows(g, splits, row_ids)
        self.longest = longest(g, lengths_of(g, splits))


def _levels(
    g: GraphContext, types: list[str], tensors: list[Value], value_count: Size
) -> tuple[Size, list[_Level]]:
    """The number of rows, and the ragged dimensions from the outermost."""
    if types and types[0] == "FIRST_DIM_SIZE":
        rows: Size = g.op("Reshape", g.cast(tensors[0], DataType.INT64), g.constant([], DataType.INT64))
        types, tensors = types[1:], tensors[1:]
    else:
        rows = compute(g, "sub", g.size(_as_splits(g, tensors[0]), 0), 1)
    levels: list[_Level] = []
    row_count = rows
    for index, (name, tensor) in enumerate(zip(types, tensors, strict=True)):
        vector = _as_splits(g, tensor)
        # The rows of the next dimension are the values of this one.
        is_last = index == len(types) - 1
        if name == "VALUE_ROWIDS":
            count = g.size(vector, 0)
            levels.append(_Level(g, splits_of(g, count_per_row(g, vector, row_count)), vector))
        elif name == "ROW_SPLITS":
            count = value_count if is_last else last_of(g, vector)
            levels.append(_Level(g, vector, row_ids_of(g, vector, count)))
        else:
            raise g.refuse(f"row partitions of the type {name} are not supported")
        row_count = count
    return rows, levels


def _index_columns(g: GraphContext, levels: list[_Level]) -> list[Value]:
    """The index of each value in each dimension of the dense tensor, outermost first."""
    columns: list[Value] = []
    # The values of an outer dimension are the rows of the next one: from the innermost outwards, each value
    # finds its row, the row of that row, and so on.
    row_of_value: Value | None = None
    for level in reversed(levels):
        positions, row_ids = level.positions, level.row_ids
        if row_of_value is not None:
            positions = g.op("Gather", positions, row_of_value, axis=0)
            row_ids = g.op("Gather", row_ids, row_of_value, axis=0)
        columns.insert(0, positions)
        row_of_value = row_ids
    return columns if row_of_value is None else [row_of_value, *columns]


@onnx_symbolic("tf::RaggedTensorToTensor")
def ragged_tensor_to_tensor(
    g: GraphContext,
    shape: Value,
    values: Value,
    default_value: Value,
    row_partition_tensors: list[Value],
    row_partition_types: list[str],
) -> Value:
    """Pad the rows with the default, and cut off what is beyond a size that `shape` states."""
    value_rank = known_rank(g, values)
    rows, levels = _levels(g, row_partition_types, row_partition_tensors, g.size(values, 0))
    inner = sizes_of(g, values)[1:]
    natural: list[Size] = [rows, *(level.longest for level in levels), *inner]
    sizes, is_cut = _stated_sizes(g, shape, natural)
    columns = _index_columns(g, levels)
    ragged_sizes, inner_sizes = sizes[: len(columns)], sizes[len(columns) :]
    if any(is_cut[: len(columns)]):
        inside: Value | None = None
        for column, size, may_cut in zip(columns, ragged_sizes, is_cut, strict=False):
            if may_cut:
                fits = g.op("Less", column, g.constant(size, DataType.INT64))
                inside = fits if inside is None else g.op("And", inside, fits)
        assert inside is not None
        selection = where_true(g, g.cast(inside, DataType.INT64))
        columns = [g.op("Gather", column, selection, axis=0) for column in columns]
        values = g.op("Gather", values, selection, axis=0)
    dtype = g.dtype(values) or DataType.FLOAT
    base = g.op("Expand", g.cast(default_value, dtype), g.stack([*ragged_sizes, *inner_sizes]))
    base = set_shape(base, [None] * (len(columns) + value_rank - 1))
    # One flat index, because below opset 11 there is no ScatterND.
    flat = columns[0]
    for column, size in zip(columns[1:], ragged_sizes[1:], strict=True):
        flat = g.op("Add", g.op("Mul", flat, g.constant(size, DataType.INT64)), column)
    rows_of_base = g.call("aten::reshape", self=base, shape=[product(g, ragged_sizes), *inner_sizes])
    written = g.call("composed::write_rows", self=rows_of_base, index=flat, values=values)
    return g.call("aten::reshape", self=written, shape=[*ragged_sizes, *inner_sizes])


def _stated_sizes(g: GraphContext, shape: Value, natural: list[Size]) -> tuple[list[Size], list[bool]]:
    """The sizes of the dense tensor, and which dimensions may be cut off: -1 leaves a size as it is."""
    elements: list[Size] | None = [*(integers(g, shape) or [])] if g.is_foldable(shape) else None
    elements = traced_elements(g, shape) if elements is None else elements
    stated = None if elements is None else [item for item in elements if isinstance(item, int)]
    if stated is None or len(stated) != len(elements or []):
        raise g.refuse("'shape' must be constant")
    if not stated or (g.rank(shape) == 0 and stated == [-1]):
        return natural, [False] * len(natural)
    if len(stated) != len(natural):
        raise g.refuse(f"'shape' has {len(stated)} sizes, but the tensor has {len(natural)} dimensions")
    sizes = [size if number == -1 else number for number, size in zip(stated, natural, strict=True)]
    return sizes, [number != -1 for number in stated]


@onnx_symbolic("tf::RaggedTensorToSparse")
def ragged_tensor_to_sparse(
    g: GraphContext, rt_nested_splits: list[Value], rt_dense_values: Value
) -> list[Value]:
    """The positions, the values and the dense shape."""
    if known_rank(g, rt_dense_values) != 1:
        raise g.refuse("ragged tensors with values of several dimensions are not supported")
    types = ["ROW_SPLITS"] * len(rt_nested_splits)
    rows, levels = _levels(g, types, rt_nested_splits, g.size(rt_dense_values, 0))
    columns = _index_columns(g, levels)
    indices = g.op("Concat", *(g.op("Unsqueeze", column, axes=[1]) for column in columns), axis=1)
    return [indices, rt_dense_values, g.stack([rows, *(level.longest for level in levels)])]


@onnx_symbolic("tf::RaggedGather")
def ragged_gather(
    g: GraphContext,
    params_nested_splits: list[Value],
    params_dense_values: Value,
    indices: Value,
    OUTPUT_RAGGED_RANK: int,
) -> list[Value]:
    """The rows that indices name, with the splits of the indices' dimensions before those of the rows."""
    rank = known_rank(g, indices)
    if rank < 1:
        raise g.refuse("'indices' must have at least one dimension")
    splits_dtype = g.dtype(params_nested_splits[0]) or DataType.INT64
    sizes = sizes_of(g, indices)
    outer: list[Value] = []
    for dim in range(1, rank):
        # The dimensions of the indices after the first are rows of equal lengths.
        count = compute(g, "add", product(g, sizes[:dim]), 1)
        outer.append(g.op("Mul", range_vector(g, count), g.constant(sizes[dim], DataType.INT64)))
    selected = flatten(g, g.cast(indices, DataType.INT64))
    nested: list[Value] = []
    for tensor in params_nested_splits:
        splits = _as_splits(g, tensor)
        lengths = g.op("Gather", lengths_of(g, splits), selected, axis=0)
        new_splits = splits_of(g, lengths)
        row_ids = row_ids_of(g, new_splits, last_of(g, new_splits))
        starts = g.op("Gather", g.op("Gather", splits, selected, axis=0), row_ids, axis=0)
        selected = g.op("Add", starts, positions_in_rows(g, new_splits, row_ids))
        nested.append(new_splits)
    values = g.op("Gather", params_dense_values, selected, axis=0)
    return [*(g.cast(splits, splits_dtype) for splits in (*outer, *nested)), values]


@onnx_symbolic("tf::RaggedRange")
def ragged_range(
    g: GraphContext, starts: Value, limits: Value, deltas: Value, Tsplits: DataType = DataType.INT64
) -> list[Value]:
    """A row of numbers for each start, limit and step; each of them may be one for all rows."""
    dtype = g.dtype(starts) or DataType.INT32
    is_integral = dtype in dtypes.INTEGERS
    # TensorFlow computes the lengths in the type of the operands; integers cannot overflow in INT64.
    wide = DataType.INT64 if is_integral else dtype
    start, limit, delta = (flatten(g, g.cast(value, wide)) for value in (starts, limits, deltas))
    # A row whose step leads away from its limit is empty: its length would be negative.
    distance = g.op("Sub", limit, start)
    if is_integral:
        sign = g.op("Sign", delta)
        # The quotient is rounded up: both operands are positive where the row has values.
        size = g.op("Abs", delta)
        raised = g.op("Add", g.op("Mul", distance, sign), g.op("Sub", size, 1))
        count = g.op("Div", g.call("aten::clamp_min", raised, 0), size)
    else:
        count = g.cast(g.op("Ceil", g.op("Div", distance, delta)), DataType.INT64)
    lengths = set_shape(g.call("aten::clamp_min", count, 0), [None])
    splits = splits_of(g, lengths)
    row_ids = row_ids_of(g, splits, last_of(g, splits))
    positions = g.cast(positions_in_rows(g, splits, row_ids), wide)
    units = g.call("aten::ones_like", lengths)
    of_rows = [g.op("Mul", value, g.cast(units, wide)) for value in (start, delta)]
    first, step = (g.op("Gather", value, row_ids, axis=0) for value in of_rows)
    values = g.op("Add", first, g.op("Mul", positions, step))
    return [g.cast(splits, Tsplits), g.cast(values, dtype)]


@onnx_symbolic("tf::RaggedBincount")
def ragged_bincount(
    g: GraphContext, splits: Value, values: Value, size: Value, weights: Value, binary_output: bool = False
) -> Value:
    """Counts of the values of each row, or sums of their weights; values from `size` on are ignored."""
    row_splits, numbers = _as_splits(g, splits), flatten(g, g.cast(values, DataType.INT64))
    rows = compute(g, "sub", g.size(row_splits, 0), 1)
    row_ids = row_ids_of(g, row_splits, g.size(numbers, 0))
    return _count_in_rows(g, row_ids, numbers, rows, size, weights, binary_output)


@onnx_symbolic("tf::SparseBincount")
def sparse_bincount(
    g: GraphContext,
    indices: Value,
    values: Value,
    dense_shape: Value,
    size: Value,
    weights: Value,
    binary_output: bool = False,
) -> Value:
    """Counts of the values of each row of a sparse matrix, or of a sparse vector."""
    shape = g.shape(dense_shape)
    rank = shape[0] if shape is not None else None
    numbers = flatten(g, g.cast(values, DataType.INT64))
    if rank == 1:
        row_ids = g.call("aten::zeros_like", numbers)
        counts = _count_in_rows(g, row_ids, numbers, 1, size, weights, binary_output)
        return g.op("Squeeze", counts, axes=[0])
    if rank != 2:
        raise g.refuse("the rank of the sparse tensor is unknown")
    rows = g.op("Gather", g.cast(dense_shape, DataType.INT64), 0, axis=0)
    row_ids = g.op("Gather", g.cast(indices, DataType.INT64), 0, axis=1)
    return _count_in_rows(g, set_shape(row_ids, [None]), numbers, rows, size, weights, binary_output)


def _count_in_rows(
    g: GraphContext,
    row_ids: Value,
    numbers: Value,
    rows: Size,
    size: Value,
    weights: Value,
    binary_output: bool,
) -> Value:
    bins = number(g, size)
    dtype = g.dtype(weights) or DataType.FLOAT
    weight_shape = g.shape(weights)
    if weight_shape is None or not all(isinstance(dim, int) for dim in weight_shape):
        raise g.refuse("the shape of 'weights' is unknown")
    is_weighted = bool(np.prod([dim for dim in weight_shape if isinstance(dim, int)], dtype=int))
    selection = where_true(g, g.cast(g.op("Less", numbers, g.constant(bins, DataType.INT64)), DataType.INT64))
    row_ids, numbers = g.op("Gather", row_ids, selection, axis=0), g.op("Gather", numbers, selection, axis=0)
    if is_weighted and not binary_output:
        added = g.op("Gather", flatten(g, weights), selection, axis=0)
    else:
        added = g.call("composed::full", size=[g.size(numbers, 0)], fill_value=1, dtype=dtype)
    # One flat index of row and bin, because the fallbacks of ScatterND scatter into one dimension.
    flat = g.op("Add", g.op("Mul", row_ids, g.constant(bins, DataType.INT64)), numbers)
    zeros = g.call("composed::full", size=[compute(g, "mul", rows, bins)], fill_value=0, dtype=dtype)
    function = "composed::write_rows" if binary_output else "composed::accumulate_rows"
    counts = g.call(function, zeros, flat, added)
    return g.call("aten::reshape", self=counts, shape=[rows, bins])

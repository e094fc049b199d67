"""Changes of the positions of sparse tensors: other shapes, order, empty rows, joins and parts.

Positions are INT64 [count, rank], in the order of rows. Source of the semantics:
tensorflow/core/kernels/sparse_*_op.cc.
"""

from collections.abc import Sequence

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.row_partitions import count_per_row
from ...compositions.size_arithmetic import Size, compute, fold_size, product, where_true
from .._common import elements, flatten, range_vector, set_shape


def sparse_sizes(g: GraphContext, dense_shape: Value, indices: Value | None) -> list[Size]:
    """The sizes of a sparse tensor of known rank."""
    shape = None if indices is None else g.shape(indices)
    rank = shape[1] if shape is not None and len(shape) == 2 else None
    sizes = elements(g, dense_shape, rank if isinstance(rank, int) else None)
    if sizes is None:
        raise g.refuse("the rank of the sparse tensor is unknown")
    return sizes


def column(g: GraphContext, indices: Value, dim: int) -> Value:
    """The positions in one dimension."""
    return set_shape(g.op("Gather", g.cast(indices, DataType.INT64), dim, axis=1), [None])


def join_columns(g: GraphContext, columns: Sequence[Value]) -> Value:
    """Positions from those in each dimension."""
    joined = g.op("Concat", *(g.op("Unsqueeze", item, axes=[1]) for item in columns), axis=1)
    return set_shape(joined, [None, len(columns)])


def flat_positions(g: GraphContext, indices: Value, sizes: Sequence[Size]) -> Value:
    """The positions in the flattened dense tensor."""
    flat = column(g, indices, 0)
    for dim, size in enumerate(sizes[1:], 1):
        scaled = g.op("Mul", flat, g.constant(size, DataType.INT64))
        flat = g.op("Add", scaled, column(g, indices, dim))
    return flat


def unravel(g: GraphContext, flat: Value, sizes: Sequence[Size]) -> Value:
    """The positions in a tensor of these sizes."""
    columns: list[Value] = []
    for size in reversed(sizes[1:]):
        divisor = g.constant(size, DataType.INT64)
        quotient = g.op("Div", flat, divisor)
        columns.insert(0, g.op("Sub", flat, g.op("Mul", quotient, divisor)))
        flat = quotient
    return join_columns(g, [flat, *columns])


@onnx_symbolic("tf::SparseReshape")
def sparse_reshape(
    g: GraphContext, input_indices: Value, input_shape: Value, new_shape: Value
) -> list[Value]:
    """One size of -1 follows from the remaining_size."""
    sizes = sparse_sizes(g, input_shape, input_indices)
    stated = elements(g, new_shape)
    if stated is None:
        raise g.refuse("the rank of the result is unknown")
    unknown = [dim for dim, size in enumerate(stated) if size == -1]
    if len(unknown) > 1:
        raise g.refuse("'new_shape' has several sizes of -1")
    new_sizes = list(stated)
    if not unknown:
        # A computed size may be -1, too: the sizes are those that agree with the number of elements.
        new_sizes = _infer_computed_sizes(g, new_sizes, product(g, sizes))
    for dim in unknown:
        remaining_size = product(g, [size for index, size in enumerate(stated) if index != dim])
        new_sizes[dim] = compute(g, "floordiv", product(g, sizes), remaining_size)
    positions = unravel(g, flat_positions(g, input_indices, sizes), new_sizes)
    return [positions, g.stack(new_sizes)]


def _infer_computed_sizes(g: GraphContext, sizes: list[Size], total: Size) -> list[Size]:
    """Replace a computed -1 by the size that follows from the remaining_size."""
    computed = [dim for dim, size in enumerate(sizes) if isinstance(size, Value)]
    if not computed:
        return sizes
    # The product of all sizes is negative if one of them is -1.
    negated = compute(g, "mul", product(g, sizes), -1)
    divisor = compute(g, "max", negated, 1)
    missing = compute(g, "floordiv", total, divisor)
    result = list(sizes)
    for dim in computed:
        size = g.constant(sizes[dim], DataType.INT64)
        is_missing = g.op("Less", size, 0)
        result[dim] = fold_size(g, g.op("Where", is_missing, g.constant(missing, DataType.INT64), size))
    return result


@onnx_symbolic("tf::SparseReorder")
def sparse_reorder(
    g: GraphContext, input_indices: Value, input_values: Value, input_shape: Value
) -> list[Value]:
    """Sort by position."""
    sizes = sparse_sizes(g, input_shape, input_indices)
    order = _sorting_order(g, flat_positions(g, input_indices, sizes))
    indices = g.op("Gather", input_indices, order, axis=0)
    return [set_shape(indices, [None, len(sizes)]), g.op("Gather", flatten(g, input_values), order, axis=0)]


def _sorting_order(g: GraphContext, keys: Value) -> Value:
    """The order that sorts keys; equal keys stay in their order."""
    count = g.size(keys, 0)
    # Sorting operators do not state the order of equal keys, so the keys are made distinct.
    distinct = g.op("Mul", keys, g.constant(compute(g, "max", count, 1), DataType.INT64))
    _, order = g.call_outputs("aten::sort", g.op("Add", distinct, range_vector(g, count)), 0)
    return set_shape(order, [None])


@onnx_symbolic("tf::SparseFillEmptyRows")
def sparse_fill_empty_rows(
    g: GraphContext, indices: Value, values: Value, dense_shape: Value, default_value: Value
) -> list[Value]:
    """Add the default at the beginning of each row without values."""
    sizes = sparse_sizes(g, dense_shape, indices)
    value_vector = flatten(g, values)
    rows = column(g, indices, 0)
    is_empty = g.op("Equal", count_per_row(g, rows, sizes[0]), 0)
    empty_rows = where_true(g, g.cast(is_empty, DataType.INT64))
    count = g.size(rows, 0)
    added = g.size(empty_rows, 0)
    zeros = [g.call("aten::zeros_like", empty_rows)] * (len(sizes) - 1)
    all_indices = g.op(
        "Concat", g.cast(indices, DataType.INT64), join_columns(g, [empty_rows, *zeros]), axis=0
    )
    order = _sorting_order(g, set_shape(g.op("Concat", rows, empty_rows, axis=0), [None]))
    dtype = g.dtype(values) or DataType.FLOAT
    defaults = g.op("Expand", g.cast(default_value, dtype), g.stack([added]))
    all_values = g.op("Concat", value_vector, set_shape(defaults, [None]), axis=0)
    # The inverse of the order states where each value went.
    total = g.size(order, 0)
    targets = g.call("composed::full", size=[total], fill_value=0, dtype=DataType.INT64)
    inverse = g.call("composed::write_rows", targets, order, range_vector(g, total))
    return [
        set_shape(g.op("Gather", all_indices, order, axis=0), [None, len(sizes)]),
        set_shape(g.op("Gather", all_values, order, axis=0), [None]),
        is_empty,
        g.call("aten::slice", self=inverse, dim=0, start=0, end=count),
    ]


@onnx_symbolic("tf::SparseConcat")
def sparse_concat(
    g: GraphContext, indices: list[Value], values: list[Value], shapes: list[Value], concat_dim: int
) -> list[Value]:
    all_sizes = [sparse_sizes(g, shape, part) for shape, part in zip(shapes, indices, strict=True)]
    dim = g.axis(concat_dim, len(all_sizes[0]))
    offset: Size = 0
    parts: list[Value] = []
    for part, sizes in zip(indices, all_sizes, strict=True):
        columns = [column(g, part, index) for index in range(len(sizes))]
        columns[dim] = g.op("Add", columns[dim], g.constant(offset, DataType.INT64))
        parts.append(join_columns(g, columns))
        offset = compute(g, "add", offset, sizes[dim])
    sizes = [*all_sizes[0][:dim], offset, *all_sizes[0][dim + 1 :]]
    joined = set_shape(g.op("Concat", *parts, axis=0), [None, len(sizes)])
    all_values = g.op("Concat", *(flatten(g, part) for part in values), axis=0)
    shape = g.stack(sizes)
    return [*sparse_reorder(g, joined, all_values, shape), shape]


@onnx_symbolic("tf::SparseSlice")
def sparse_slice(
    g: GraphContext, indices: Value, values: Value, shape: Value, start: Value, size: Value
) -> list[Value]:
    """The values in a box, with positions that count from its corner."""
    sizes = sparse_sizes(g, shape, indices)
    starts, lengths = elements(g, start, len(sizes)), elements(g, size, len(sizes))
    assert starts is not None
    assert lengths is not None
    inside: Value | None = None
    columns: list[Value] = []
    new_sizes: list[Size] = []
    for dim, (first, length, total) in enumerate(zip(starts, lengths, sizes, strict=True)):
        shifted = g.op("Sub", column(g, indices, dim), g.constant(first, DataType.INT64))
        length = compute(g, "max", compute(g, "min", length, compute(g, "sub", total, first)), 0)
        fits = g.op(
            "And",
            g.op("Not", g.op("Less", shifted, 0)),
            g.op("Less", shifted, g.constant(length, DataType.INT64)),
        )
        inside = fits if inside is None else g.op("And", inside, fits)
        columns.append(shifted)
        new_sizes.append(length)
    assert inside is not None
    selection = where_true(g, g.cast(inside, DataType.INT64))
    positions = g.op("Gather", join_columns(g, columns), selection, axis=0)
    return [
        set_shape(positions, [None, len(sizes)]),
        g.op("Gather", flatten(g, values), selection, axis=0),
        g.stack(new_sizes),
    ]

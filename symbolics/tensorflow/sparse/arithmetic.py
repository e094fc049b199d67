"""Sparse tensors with dense ones: sums, products and reductions."""

from collections.abc import Callable

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_functions
from ...compositions.row_partitions import count_per_row
from ...compositions.size_arithmetic import known_rank, product, where_true
from .._common import binary, flatten, select_elements, set_shape
from ..indexing.scattering import scatter_updates
from .positions import flat_positions, sparse_sizes, unravel


def _dense(g: GraphContext, indices: Value, values: Value, shape: Value) -> Value:
    """The dense form; values of one position are added."""
    sizes = sparse_sizes(g, shape, indices)
    dtype = g.dtype(values) or DataType.FLOAT
    zeros = g.call("composed::full", size=[product(g, sizes)], fill_value=0, dtype=dtype)
    flat = flat_positions(g, indices, sizes)
    total = scatter_updates(g, zeros, g.op("Unsqueeze", flat, axes=[1]), flatten(g, values), "add")
    return g.call("aten::reshape", self=total, shape=sizes)


def _with_dense(op_type: str) -> Callable[..., Value]:
    def combine(g: GraphContext, sp_indices: Value, sp_values: Value, sp_shape: Value, dense: Value) -> Value:
        """Combine the values with the elements of the dense tensor, broadcast, at their positions."""
        # The dense tensor is broadcast to the sparse one, never the other way round.
        sizes = sparse_sizes(g, sp_shape, sp_indices)
        expanded = g.op("Expand", dense, g.stack(sizes)) if known_rank(g, dense) else dense
        if known_rank(g, dense):
            rows = g.call("aten::reshape", self=expanded, shape=[-1])
            expanded = g.op("Gather", rows, flat_positions(g, sp_indices, sizes), axis=0)
        return binary(g, op_type, flatten(g, sp_values), expanded)

    return combine


register_functions(
    "tf",
    "sp_indices sp_values sp_shape dense",
    {
        "SparseDenseCwiseAdd": _with_dense("Add"),
        "SparseDenseCwiseMul": _with_dense("Mul"),
        "SparseDenseCwiseDiv": _with_dense("Div"),
    },
)


@onnx_symbolic("tf::SparseTensorDenseAdd")
def sparse_tensor_dense_add(
    g: GraphContext, a_indices: Value, a_values: Value, a_shape: Value, b: Value
) -> Value:
    return g.call("tf::AddV2", _dense(g, a_indices, a_values, a_shape), b)


@onnx_symbolic("tf::SparseReduceSum")
def sparse_reduce_sum(
    g: GraphContext,
    input_indices: Value,
    input_values: Value,
    input_shape: Value,
    reduction_axes: Value,
    keep_dims: bool = False,
) -> Value:
    """The sum over some dimensions, or over all if no axes are stated."""
    dense = _dense(g, input_indices, input_values, input_shape)
    return g.call("tf::Sum", dense, _stated_axes(g, reduction_axes, dense), keep_dims)


@onnx_symbolic("tf::SparseReduceMax")
def sparse_reduce_max(
    g: GraphContext,
    input_indices: Value,
    input_values: Value,
    input_shape: Value,
    reduction_axes: Value,
    keep_dims: bool = False,
) -> Value:
    """The greatest of the values, 0 where there is none."""
    sizes = sparse_sizes(g, input_shape, input_indices)
    values = flatten(g, input_values)
    flat = flat_positions(g, input_indices, sizes)
    count = g.constant(product(g, sizes), DataType.INT64)
    # Positions without a value get the lowest number.
    largest = g.call("tf::UnsortedSegmentMax", values, flat, count)
    dense = g.call("aten::reshape", self=largest, shape=sizes)
    axes = _stated_axes(g, reduction_axes, dense)
    occupied = _dense(g, input_indices, g.call("aten::ones_like", values, DataType.INT64), input_shape)
    counts = g.call("tf::Sum", occupied, axes, keep_dims)
    result = g.call("tf::Max", dense, axes, keep_dims)
    return select_elements(g, g.op("Equal", counts, 0), g.call("aten::zeros_like", result), result)


def _stated_axes(g: GraphContext, reduction_axes: Value, dense: Value) -> Value:
    axes = g.constant_value(reduction_axes)
    if axes is None:
        raise g.refuse("'reduction_axes' must be constant")
    return reduction_axes if axes.size else g.constant(list(range(known_rank(g, dense))))


@onnx_symbolic("tf::SparseAdd")
def sparse_add(
    g: GraphContext,
    a_indices: Value,
    a_values: Value,
    a_shape: Value,
    b_indices: Value,
    b_values: Value,
    b_shape: Value,
    thresh: Value,
) -> list[Value]:
    """The sums at the positions of both tensors; sums of two values below a threshold are left out."""
    sizes = sparse_sizes(g, a_shape, a_indices)
    flat = g.op("Concat", *(flat_positions(g, part, sizes) for part in (a_indices, b_indices)), axis=0)
    values = g.op("Concat", flatten(g, a_values), flatten(g, b_values), axis=0)
    flat, values = set_shape(flat, [None]), set_shape(values, [None])
    count = product(g, sizes)
    totals = g.call("tf::UnsortedSegmentSum", values, flat, g.constant(count, DataType.INT64))
    occurrences = count_per_row(g, flat, count)
    selection = g.op("Greater", occurrences, 0)
    limit = g.constant_value(thresh)
    if limit is None or limit.any():
        small = g.op("Less", g.op("Abs", totals), g.cast(thresh, g.dtype(a_values) or DataType.FLOAT))
        is_omitted = g.op("And", small, g.op("Greater", occurrences, 1))
        selection = g.op("And", selection, g.op("Not", is_omitted))
    chosen = where_true(g, g.cast(selection, DataType.INT64))
    return [unravel(g, chosen, sizes), g.op("Gather", totals, chosen, axis=0), g.stack(sizes)]


@onnx_symbolic("tf::SparseSoftmax")
def sparse_softmax(g: GraphContext, sp_indices: Value, sp_values: Value, sp_shape: Value) -> Value:
    """The softmax of the values of each row of the last dimension."""
    sizes = sparse_sizes(g, sp_shape, sp_indices)
    values = flatten(g, sp_values)
    flat = flat_positions(g, sp_indices, sizes)
    rows = g.op("Div", flat, g.constant(sizes[-1], DataType.INT64))
    count = g.constant(product(g, sizes[:-1]), DataType.INT64)
    largest = g.call("tf::UnsortedSegmentMax", values, rows, count)
    powers = g.op("Exp", g.op("Sub", values, g.op("Gather", largest, rows, axis=0)))
    totals = g.call("tf::UnsortedSegmentSum", powers, rows, count)
    return g.op("Div", powers, g.op("Gather", totals, rows, axis=0))

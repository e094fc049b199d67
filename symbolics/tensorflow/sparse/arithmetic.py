"""Sparse tensors with dense ones: sums, products and reductions."""

from collections.abc import Callable

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_functions
from ...compositions.size_arithmetic import known_rank, product
from .._common import binary, flatten
from ..indexing.scattering import scatter_updates
from .positions import flat_positions, sparse_sizes


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
    axes = g.constant_value(reduction_axes)
    if axes is None:
        raise g.refuse("'reduction_axes' must be constant")
    if not axes.size:
        reduction_axes = g.constant(list(range(known_rank(g, dense))))
    return g.call("tf::Sum", dense, reduction_axes, keep_dims)


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

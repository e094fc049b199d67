"""Reads by index."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import known_rank, sizes_of
from .._common import (
    as_vector,
    check_policy,
    constant_integer,
    front_axis,
    integers,
    set_shape,
    traced_elements,
)
from ..computed_axis import ComputedAxis


@onnx_symbolic("tf::Gather")
def gather(g: GraphContext, params: Value, indices: Value, validate_indices: bool = True) -> Value:
    return g.op("Gather", params, indices, axis=0)


def _gather_known_sizes(g: GraphContext, params: Value, indices: Value) -> Value | None:
    """Gather from a vector of known sizes, folded to constants; None if the vector is something else."""
    positions = integers(g, indices)
    known_sizes = traced_elements(g, params) if g.rank(params) == 1 and positions is not None else None
    if (
        known_sizes is None
        or positions is None
        or not all(0 <= position < len(known_sizes) for position in positions)
    ):
        return None
    selection = [known_sizes[position] for position in positions]
    if g.rank(indices) == 0:
        return g.cast(g.constant(selection[0]), g.dtype(params) or DataType.INT32)
    return as_vector(g, selection, params) if g.rank(indices) == 1 else None


@onnx_symbolic("tf::GatherV2")
def gather_v2(g: GraphContext, params: Value, indices: Value, axis: Value, batch_dims: int = 0) -> Value:
    """With batch dimensions, an index selects within its own element of the batch."""
    if batch_dims < 0:
        batch_dims += known_rank(g, indices)
    if not batch_dims and integers(g, axis) is None:
        computed = ComputedAxis.of(g, axis, params)
        selection = g.op("Gather", computed.view(params), indices, axis=1)
        dims = g.op("Shape", indices)
        return computed.restore_with_dims(selection, params, dims, known_rank(g, indices))
    dim = constant_integer(g, axis, "axis")
    if not batch_dims:
        gathered = _gather_known_sizes(g, params, indices)
        if gathered is not None:
            return gathered
        return g.op("Gather", params, indices, axis=front_axis(g, dim, params))
    rank, index_rank = known_rank(g, params), known_rank(g, indices)
    dim = g.axis(dim, rank)
    transposed = params
    if dim != batch_dims:
        order = [*range(batch_dims), dim, *(i for i in range(batch_dims, rank) if i != dim)]
        # GatherND indexes the dimension after the batch.
        transposed = g.op("Transpose", params, perm=order)
    column = g.op("Unsqueeze", g.cast(indices, DataType.INT64), axes=[index_rank])
    index_dims = index_rank - batch_dims
    gathered = g.op("GatherND", transposed, column, batch_dims=batch_dims)
    gathered = set_shape(gathered, [None] * (rank - 1 + index_dims))
    axes_before = dim - batch_dims
    if not axes_before:
        return gathered
    # GatherND returns the batch, the index dimensions, then the dimensions before and after the axis.
    # TensorFlow has the index dimensions in place of the axis.
    total = rank - 1 + index_dims
    order = [
        *range(batch_dims),
        *range(batch_dims + index_dims, batch_dims + index_dims + axes_before),
        *range(batch_dims, batch_dims + index_dims),
        *range(batch_dims + index_dims + axes_before, total),
    ]
    return g.op("Transpose", gathered, perm=order)


@onnx_symbolic("tf::GatherNd")
def gather_nd(g: GraphContext, params: Value, indices: Value, bad_indices_policy: str = "") -> Value:
    """An empty index tuple selects the whole tensor."""
    check_policy(g, bad_indices_policy)
    shape, rank = g.shape(indices), g.rank(params)
    if shape is not None and shape[-1] == 0:
        tuples = [g.size(indices, dim) for dim in range(len(shape) - 1)]
        return g.call("aten::expand", self=params, size=[*tuples, *sizes_of(g, params)])
    gathered = g.op("GatherND", params, g.cast(indices, DataType.INT64))
    if shape is None or rank is None or not isinstance(shape[-1], int):
        return gathered
    return set_shape(gathered, [None] * (len(shape) - 1 + rank - shape[-1]))


@onnx_symbolic("tf::Where")
def where(g: GraphContext, input: Value) -> Value:
    """The positions of nonzero elements, one per row."""
    mask = g.cast(input, DataType.BOOL)
    if g.rank(input) is None:
        return set_shape(g.op("Transpose", g.op("NonZero", mask), perm=[1, 0]), [None, None])
    return set_shape(g.call("aten::nonzero", self=mask), [None, g.rank(input)])

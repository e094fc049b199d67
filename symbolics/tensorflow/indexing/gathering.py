"""Reads by index."""

from __future__ import annotations

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import known_rank
from .._common import as_vector, check_policy, constant_integer, front, integers, joined, shaped


@onnx_symbolic("tf::Gather")
def gather(g: GraphContext, params: Value, indices: Value, validate_indices: bool = True) -> Value:
    return g.op("Gather", params, indices, axis=0)


def _of_sizes(g: GraphContext, params: Value, indices: Value) -> Value | None:
    """Gather from a vector of known sizes, folded to constants; None if the vector is something else."""
    places = integers(g, indices)
    known_sizes = joined(g, params) if g.rank(params) == 1 and places is not None else None
    if known_sizes is None or places is None or not all(0 <= place < len(known_sizes) for place in places):
        return None
    chosen = [known_sizes[place] for place in places]
    if g.rank(indices) == 0:
        return g.cast(g.constant(chosen[0]), g.dtype(params) or DataType.INT32)
    return as_vector(g, chosen, params) if g.rank(indices) == 1 else None


@onnx_symbolic("tf::GatherV2")
def gather_v2(g: GraphContext, params: Value, indices: Value, axis: Value, batch_dims: int = 0) -> Value:
    """With batch dimensions an index belongs to one element of the batch."""
    at = constant_integer(g, axis, "axis")
    if batch_dims < 0:
        batch_dims += known_rank(g, indices)
    if not batch_dims:
        found = _of_sizes(g, params, indices)
        if found is not None:
            return found
        return g.op("Gather", params, indices, axis=front(g, at, params))
    rank, index_rank = known_rank(g, params), known_rank(g, indices)
    at = g.axis(at, rank)
    moved = params
    if at != batch_dims:
        order = [*range(batch_dims), at, *(i for i in range(batch_dims, rank) if i != at)]
        moved = g.op("Transpose", params, perm=order)
    column = g.op("Unsqueeze", g.cast(indices, DataType.INT64), axes=[index_rank])
    added = index_rank - batch_dims
    found = g.op("GatherND", moved, column, batch_dims=batch_dims)
    found = shaped(found, [None] * (rank - 1 + added))
    between = at - batch_dims
    if not between:
        return found
    # The dimensions are the batch, those of the indices, those before the axis, those behind it.
    total = rank - 1 + added
    order = [
        *range(batch_dims),
        *range(batch_dims + added, batch_dims + added + between),
        *range(batch_dims, batch_dims + added),
        *range(batch_dims + added + between, total),
    ]
    return g.op("Transpose", found, perm=order)


@onnx_symbolic("tf::GatherNd")
def gather_nd(g: GraphContext, params: Value, indices: Value, bad_indices_policy: str = "") -> Value:
    check_policy(g, bad_indices_policy)
    found = g.op("GatherND", params, g.cast(indices, DataType.INT64))
    shape, rank = g.shape(indices), g.rank(params)
    if shape is None or rank is None or not isinstance(shape[-1], int):
        return found
    return shaped(found, [None] * (len(shape) - 1 + rank - shape[-1]))


@onnx_symbolic("tf::Where")
def where(g: GraphContext, input: Value) -> Value:
    """The positions of nonzero elements, one per row."""
    mask = g.cast(input, DataType.BOOL)
    if g.rank(input) is None:
        return shaped(g.op("Transpose", g.op("NonZero", mask), perm=[1, 0]), [None, None])
    return shaped(g.call("aten::nonzero", self=mask), [None, g.rank(input)])

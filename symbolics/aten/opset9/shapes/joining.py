"""Operators that join tensors: cat, stack, hstack, vstack, dstack. A list of unknown length is one value."""

from collections.abc import Sequence

import onnx_ir as ir

from .....registration import GraphContext, Value, onnx_symbolic
from ....compositions.list_values import Known, element_shape, is_sequence, merged
from ....compositions.sizes import axis, known_rank, static_size


def _listed(tensors: list[Value] | Value) -> list[Value] | Value:
    """The elements of a list if they are known, else the list."""
    return tensors if isinstance(tensors, list) or not isinstance(tensors, Known) else tensors.items


def _rank(g: GraphContext, tensors: Value) -> int:
    shape = element_shape(tensors)
    if shape is None:
        raise g.refuse("the rank of the elements of the list is unknown")
    return len(shape)


def _stacked(g: GraphContext, tensors: Value, dim: int) -> Value:
    """Stack the elements of a list along a new dimension."""
    if is_sequence(tensors):
        shape = element_shape(tensors)
        result = g.op("ConcatFromSequence", tensors, axis=dim, new_axis=1)
        if shape is not None:
            at = dim % (len(shape) + 1)
            result.shape = ir.Shape([*shape[:at], None, *shape[at:]])
        return result
    if dim == 0:
        return tensors
    return g.call("aten::movedim", self=tensors, source=0, destination=dim % (_rank(g, tensors) + 1))


def _concatenated(g: GraphContext, tensors: Value, dim: int) -> Value:
    """Concatenate the elements of a list along an existing dimension."""
    if is_sequence(tensors):
        shape = element_shape(tensors)
        result = g.op("ConcatFromSequence", tensors, axis=dim, new_axis=0)
        if shape is not None:
            at = dim % len(shape)
            result.shape = ir.Shape([*shape[:at], None, *shape[at + 1 :]])
        return result
    at = dim % _rank(g, tensors) if dim else 0
    return merged(g, _stacked(g, tensors, at), at)


@onnx_symbolic(["aten::cat", "aten::concat", "aten::concatenate"])
def cat(g: GraphContext, tensors: list[Value] | Value, dim: int = 0) -> Value:
    """An empty one-dimensional tensor can be joined with tensors of any rank, and is ignored."""
    tensors = _listed(tensors)
    if not isinstance(tensors, list):
        return _concatenated(g, tensors, dim)
    if len(tensors) == 1:
        return tensors[0]
    joined = [tensor for tensor in tensors if g.shape(tensor) != (0,)] or tensors[:1]
    at = axis(g, joined[0], dim)
    joined = [tensor for tensor in joined if static_size(g, tensor, at) != 0] or joined[:1]
    return joined[0] if len(joined) == 1 else g.op("Concat", *joined, axis=at)


@onnx_symbolic("aten::stack")
def stack(g: GraphContext, tensors: list[Value] | Value, dim: int = 0) -> Value:
    tensors = _listed(tensors)
    if isinstance(tensors, Value):
        return _stacked(g, tensors, dim)
    at = dim if dim >= 0 else dim + known_rank(g, tensors[0]) + 1
    raised = [g.op("Unsqueeze", tensor, axes=[at]) for tensor in tensors]
    return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=at)


def _at_least(g: GraphContext, rank: int, tensors: Sequence[Value]) -> list[Value]:
    return [g.call(f"aten::atleast_{rank}d", self=tensor) for tensor in tensors]


@onnx_symbolic("aten::hstack")
def hstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _listed(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        return _stacked(g, tensors, 0) if rank == 0 else _concatenated(g, tensors, min(rank - 1, 1))
    raised = _at_least(g, 1, tensors)
    return g.call("aten::cat", tensors=raised, dim=0 if g.rank(raised[0]) == 1 else 1)


@onnx_symbolic(["aten::vstack", "aten::row_stack"])
def vstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _listed(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        if rank >= 2:
            return _concatenated(g, tensors, 0)
        stacked = _stacked(g, tensors, 0)
        return stacked if rank == 1 else g.op("Unsqueeze", stacked, axes=[1])
    return g.call("aten::cat", tensors=_at_least(g, 2, tensors), dim=0)


@onnx_symbolic("aten::dstack")
def dstack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _listed(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        if rank >= 3:
            return _concatenated(g, tensors, 2)
        stacked = _stacked(g, tensors, rank)
        return stacked if rank == 2 else g.op("Unsqueeze", stacked, axes=list(range(2 - rank)))
    return g.call("aten::cat", tensors=_at_least(g, 3, tensors), dim=2)


@onnx_symbolic("aten::column_stack")
def column_stack(g: GraphContext, tensors: list[Value] | Value) -> Value:
    tensors = _listed(tensors)
    if isinstance(tensors, Value):
        rank = _rank(g, tensors)
        if rank >= 2:
            return _concatenated(g, tensors, 1)
        stacked = _stacked(g, tensors, rank)
        return stacked if rank == 1 else g.op("Unsqueeze", stacked, axes=[0])
    columns = [
        g.call("aten::reshape", self=tensor, shape=[-1, 1]) if known_rank(g, tensor) < 2 else tensor
        for tensor in tensors
    ]
    return g.call("aten::cat", tensors=columns, dim=1)

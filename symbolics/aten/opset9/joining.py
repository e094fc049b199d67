"""Operators that join tensors: cat, stack and their kin."""

from collections.abc import Sequence

from ....registration import GraphContext, Value, onnx_symbolic
from ...sizes import axis, known_rank, static_size


@onnx_symbolic("aten::cat")
@onnx_symbolic("aten::concat")
@onnx_symbolic("aten::concatenate")
def cat(g: GraphContext, tensors: list[Value], dim: int = 0) -> Value:
    """A one-dimensional tensor without elements joins tensors of any rank, and adds nothing."""
    if len(tensors) == 1:
        return tensors[0]
    joined = [tensor for tensor in tensors if g.shape(tensor) != (0,)] or tensors[:1]
    at = axis(g, joined[0], dim)
    joined = [tensor for tensor in joined if static_size(g, tensor, at) != 0] or joined[:1]
    return joined[0] if len(joined) == 1 else g.op("Concat", *joined, axis=at)


@onnx_symbolic("aten::stack")
def stack(g: GraphContext, tensors: list[Value], dim: int = 0) -> Value:
    at = dim if dim >= 0 else dim + known_rank(g, tensors[0]) + 1
    raised = [g.op("Unsqueeze", tensor, axes=[at]) for tensor in tensors]
    return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=at)


def _at_least(g: GraphContext, rank: int, tensors: Sequence[Value]) -> list[Value]:
    return [g.call(f"aten::atleast_{rank}d", self=tensor) for tensor in tensors]


@onnx_symbolic("aten::hstack")
def hstack(g: GraphContext, tensors: list[Value]) -> Value:
    raised = _at_least(g, 1, tensors)
    return g.call("aten::cat", tensors=raised, dim=0 if g.rank(raised[0]) == 1 else 1)


@onnx_symbolic("aten::vstack")
@onnx_symbolic("aten::row_stack")
def vstack(g: GraphContext, tensors: list[Value]) -> Value:
    return g.call("aten::cat", tensors=_at_least(g, 2, tensors), dim=0)


@onnx_symbolic("aten::dstack")
def dstack(g: GraphContext, tensors: list[Value]) -> Value:
    return g.call("aten::cat", tensors=_at_least(g, 3, tensors), dim=2)


@onnx_symbolic("aten::column_stack")
def column_stack(g: GraphContext, tensors: list[Value]) -> Value:
    columns = [
        g.call("aten::reshape", self=tensor, shape=[-1, 1]) if known_rank(g, tensor) < 2 else tensor
        for tensor in tensors
    ]
    return g.call("aten::cat", tensors=columns, dim=1)

"""TensorFlow's If and Case. Their blocks receive all outer values as arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...registration import Block, DataType, GraphContext, Value, onnx_symbolic
from ..compositions.branches import check_carried, constant_condition, extend_branch, open_branch
from ..compositions.list_values import common_shape, is_settled
from ..compositions.size_arithmetic import Dim
from ._common import number
from .list_values import Unwritten, as_tensor, element_sizes


def flag(g: GraphContext, condition: Value) -> Value:
    """Convert a condition to a zero-dim BOOL: a nonzero scalar or a nonempty tensor is true."""
    rank = g.rank(condition)
    if rank is not None and rank > 0:
        return g.op("Greater", g.op("Size", condition), 0)
    if condition.dtype == DataType.STRING:
        raise g.refuse("its condition is a string, which is not supported")
    found = g.cast(condition, DataType.BOOL)
    return found if rank == 0 else g.op("Reshape", found, g.constant([], DataType.INT64))


@onnx_symbolic("tf::If")
def if_(g: GraphContext, cond: Value, input: list[Value]) -> Sequence[Value]:
    """A conditional; if the condition is constant, the taken branch is inlined."""
    then_branch, else_branch = g.blocks
    condition = flag(g, cond)
    decided = constant_condition(condition)
    if decided is not None:
        return (then_branch if decided else else_branch).inline(*input)
    return _either(g, condition, lambda: then_branch.inline(*input), lambda: else_branch.inline(*input))


@onnx_symbolic("tf::Case")
def case(g: GraphContext, branch_index: Value, input: list[Value]) -> Sequence[Value]:
    """Run one of several branches; the last one also if the index is out of range."""
    blocks = g.blocks
    place = number(g, branch_index)
    if isinstance(place, int):
        return blocks[place if 0 <= place < len(blocks) else -1].inline(*input)
    last = len(blocks) - 1
    inside = g.op("And", g.op("Less", place, last), g.op("Not", g.op("Less", place, 0)))
    return _one_of(g, g.op("Where", inside, place, last), blocks, 0, input)


def _one_of(
    g: GraphContext, place: Value, blocks: Sequence[Block], first: int, given: Sequence[Value]
) -> list[Value]:
    """Select a block by nested Ifs (binary search); `first` is the index of the first block."""
    if len(blocks) == 1:
        return blocks[0].inline(*given)
    middle = len(blocks) // 2
    return _either(
        g,
        g.op("Less", place, first + middle),
        lambda: _one_of(g, place, blocks[:middle], first, given),
        lambda: _one_of(g, place, blocks[middle:], first + middle, given),
    )


def _either(
    g: GraphContext, condition: Value, then: Callable[[], list[Value]], otherwise: Callable[[], list[Value]]
) -> list[Value]:
    """An If; the shape of each result is the common part of both branches' shapes."""
    first, second = open_branch(g, then, "then_branch"), open_branch(g, otherwise, "else_branch")
    pairs = list(zip(first[1], second[1], strict=True))
    if not pairs:
        return []
    ours = extend_branch(g, first[0], lambda: [_in_representation_of(g, a, b) for a, b in pairs])
    others = extend_branch(g, second[0], lambda: [_in_representation_of(g, b, a) for a, b in pairs])
    shapes = [common_shape([a.shape, b.shape]) for a, b in zip(ours, others, strict=True)]
    for (graph, _), values, taken in ((first, ours, True), (second, others, False)):
        _close(g, graph, condition, taken, list(zip(values, shapes, strict=True)))
    results = g.op("If", condition, then_branch=first[0], else_branch=second[0], outputs=len(pairs))
    results = results if isinstance(results, list) else [results]
    check_carried(g, "If", ours)
    for value, like, shape in zip(results, ours, shapes, strict=True):
        value.type, value.shape = like.type, None if shape is None else ir.Shape(shape)
    return results


def _close(
    g: GraphContext,
    graph: ir.Graph,
    condition: Value,
    taken: bool,
    outputs: Sequence[tuple[Value, Sequence[Dim] | None]],
) -> None:
    """Set the outputs of a branch; hide shapes that differ from the other branch's."""

    def build() -> list[Value]:
        if all(is_settled(shape) for _, shape in outputs):
            return [value for value, _ in outputs]
        chosen = condition if taken else g.op("Not", condition)
        return [
            value
            if is_settled(shape)
            else g.call("composed::branch_result", value, chosen, shape is not None)
            for value, shape in outputs
        ]

    g.extend(graph, build)


def _in_representation_of(g: GraphContext, value: Value, other: Value) -> Value:
    """Convert a branch's result to the other branch's representation: an unwritten list becomes zeros."""
    if isinstance(value, Unwritten) and not isinstance(other, Unwritten):
        sizes = element_sizes(other)
        if sizes is not None and all(isinstance(size, int) for size in sizes):
            return as_tensor(g, Unwritten(value.count, value.dtype or DataType.FLOAT, sizes))
    return as_tensor(g, value)

"""TensorFlow's If and Case. Their blocks receive all outer values as arguments."""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ....registration import Block, DataType, GraphContext, Value, onnx_symbolic
from ....registration.functions.results import as_list
from ...compositions.branches import check_carried, constant_condition, extend_branch, open_branch
from ...compositions.list_values import common_shape, is_settled
from ...compositions.size_arithmetic import Dim
from .._common import number
from ..list_values import UnwrittenList, as_tensor, element_sizes


def to_condition(g: GraphContext, condition: Value) -> Value:
    """Convert a condition to a zero-dim BOOL: a nonzero scalar or a nonempty tensor is true."""
    rank = g.rank(condition)
    if rank is not None and rank > 0:
        return g.op("Greater", g.op("Size", condition), 0)
    if condition.dtype == DataType.STRING:
        raise g.refuse("its condition is a string, which is not supported")
    truth = g.cast(condition, DataType.BOOL)
    return truth if rank == 0 else g.op("Reshape", truth, g.constant([], DataType.INT64))


@onnx_symbolic("tf::If")
def if_(g: GraphContext, cond: Value, input: list[Value]) -> Sequence[Value]:
    """A conditional. If the condition is constant, only its branch is inlined."""
    then_branch, else_branch = g.blocks
    condition = to_condition(g, cond)
    constant_truth = constant_condition(condition)
    if constant_truth is not None:
        return (then_branch if constant_truth else else_branch).inline(*input)
    return _emit_if(g, condition, lambda: then_branch.inline(*input), lambda: else_branch.inline(*input))


@onnx_symbolic("tf::Case")
def case(g: GraphContext, branch_index: Value, input: list[Value]) -> Sequence[Value]:
    """Run one of several branches; an index out of range selects the last one."""
    blocks = g.blocks
    index = number(g, branch_index)
    if isinstance(index, int):
        return blocks[index if 0 <= index < len(blocks) else -1].inline(*input)
    last_block = len(blocks) - 1
    # An index out of range selects the last branch.
    is_in_range = g.op("And", g.op("Less", index, last_block), g.op("Not", g.op("Less", index, 0)))
    return _select_block(g, g.op("Where", is_in_range, index, last_block), blocks, 0, input)


def _select_block(
    g: GraphContext, index: Value, blocks: Sequence[Block], first: int, inputs: Sequence[Value]
) -> list[Value]:
    """Select a block by nested Ifs (binary search); `first` is the index of the first block."""
    if len(blocks) == 1:
        return blocks[0].inline(*inputs)
    middle = len(blocks) // 2
    return _emit_if(
        g,
        g.op("Less", index, first + middle),
        lambda: _select_block(g, index, blocks[:middle], first, inputs),
        lambda: _select_block(g, index, blocks[middle:], first + middle, inputs),
    )


def _emit_if(
    g: GraphContext, condition: Value, then: Callable[[], list[Value]], otherwise: Callable[[], list[Value]]
) -> list[Value]:
    """An If; the shape of each result is the common part of both branches' shapes."""
    then_pair, else_pair = open_branch(g, then, "then_branch"), open_branch(g, otherwise, "else_branch")
    pairs = list(zip(then_pair[1], else_pair[1], strict=True))
    if not pairs:
        return []
    then_values = extend_branch(g, then_pair[0], lambda: [_match_representation(g, a, b) for a, b in pairs])
    else_values = extend_branch(g, else_pair[0], lambda: [_match_representation(g, b, a) for a, b in pairs])
    shapes = [common_shape([a.shape, b.shape]) for a, b in zip(then_values, else_values, strict=True)]
    for (graph, _), values, is_then in ((then_pair, then_values, True), (else_pair, else_values, False)):
        _close_branch(g, graph, condition, is_then, list(zip(values, shapes, strict=True)))
    results = as_list(
        g.op("If", condition, then_branch=then_pair[0], else_branch=else_pair[0], outputs=len(pairs))
    )
    check_carried(g, "If", then_values)
    for value, like, shape in zip(results, then_values, shapes, strict=True):
        value.type, value.shape = like.type, None if shape is None else ir.Shape(shape)
    return results


def _close_branch(
    g: GraphContext,
    graph: ir.Graph,
    condition: Value,
    is_then: bool,
    outputs: Sequence[tuple[Value, Sequence[Dim] | None]],
) -> None:
    """Set the outputs of a branch; hide the shape of an output that differs from the other branch's."""

    def build() -> list[Value]:
        if all(is_settled(shape) for _, shape in outputs):
            return [value for value, _ in outputs]
        branch_condition = condition if is_then else g.op("Not", condition)
        return [
            value
            if is_settled(shape)
            else g.call("composed::branch_result", value, branch_condition, shape is not None)
            for value, shape in outputs
        ]

    g.extend(graph, build)


def _match_representation(g: GraphContext, value: Value, counterpart: Value) -> Value:
    """Convert a branch's result to the representation of its counterpart in the other branch.

    An unwritten list becomes zeros if the other branch writes the list.
    """
    if isinstance(value, UnwrittenList) and not isinstance(counterpart, UnwrittenList):
        sizes = element_sizes(counterpart)
        if sizes is not None and all(isinstance(size, int) for size in sizes):
            return as_tensor(g, UnwrittenList(value.count, value.dtype or DataType.FLOAT, sizes))
    return as_tensor(g, value)

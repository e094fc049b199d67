"""Analyses loop variables in the source graph: invariants, counters, and lists written in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ...registration import Value
from ...registration.arguments import arguments

_SAME = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics"})
_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})
WRITES = {
    "TensorListSetItem": ("input_handle", "index"),
    "TensorArrayWriteV3": ("flow_in", "index"),
}
"""The operators that write an element of a list: their arguments for the list and the position."""
_COMPARISONS = {
    "Less": ("x", "y", 0),
    "LessEqual": ("x", "y", 1),
    "Greater": ("y", "x", 0),
    "GreaterEqual": ("y", "x", 1),
}
"""The lower and the higher argument of each comparison, and what makes the higher one exclusive."""


def origin(value: Value) -> Value:
    """Skip Identity nodes."""
    node = value.producer()
    while node is not None and node.op_type in _SAME and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def is_kept(body: ir.Graph, index: int) -> bool:
    """Whether a variable is loop-invariant."""
    return origin(body.outputs[index]) is body.inputs[index]


def step_of(body: ir.Graph, index: int) -> int | None:
    """The constant that each iteration adds to an integer variable; None for other updates."""
    formal, result = body.inputs[index], origin(body.outputs[index])
    node = result.producer()
    if node is None or node.op_type not in ("Add", "AddV2") or result.dtype not in _INTEGERS:
        return None
    given = arguments(node)
    terms = [origin(given["x"]), origin(given["y"])]
    for own, other in (terms, terms[::-1]):
        if own is formal:
            return _number(other)
    return None


def _number(value: Value) -> int | None:
    tensor = value.const_value
    if tensor is None or len(tensor.shape) or value.dtype not in _INTEGERS:
        return None
    return int(tensor.numpy())


@dataclasses.dataclass(frozen=True)
class Bound:
    """A counter and the limit below which the loop continues.

    Attributes:
        start: its value before the loop.
        limit: the limit, a value before the loop or a number.
        beyond: what is added to the limit.
        step: what an iteration adds, more than 0.
    """

    start: Value
    limit: Value | int
    beyond: int
    step: int


def bounds_of(condition: ir.Graph, body: ir.Graph, given: Sequence[Value]) -> list[Bound] | None:
    """The bounds in a loop's condition; None if the condition contains anything else.

    Args:
        given: the variables before the loop.
    """
    found = []
    for part in _conjuncts(condition.outputs[0]):
        bound = _bound(part, condition, body, given)
        if bound is None:
            return None
        found.append(bound)
    return found


def _conjuncts(value: Value) -> Iterator[Value]:
    """The operands of a conjunction."""
    pending = [value]
    while pending:
        value = origin(pending.pop())
        node = value.producer()
        if node is not None and node.op_type == "LogicalAnd":
            both = arguments(node)
            pending += [both["x"], both["y"]]
        else:
            yield value


def _bound(value: Value, condition: ir.Graph, body: ir.Graph, given: Sequence[Value]) -> Bound | None:
    node = value.producer()
    comparison = _COMPARISONS.get(node.op_type) if node is not None else None
    if node is None or comparison is None:
        return None
    lower, higher, beyond = comparison
    both = arguments(node)
    counter, limit = _variable(condition, both[lower]), _variable(condition, both[higher])
    if counter is None or given[counter].dtype not in _INTEGERS:
        return None
    step = step_of(body, counter)
    if step is None or step <= 0:
        return None
    if limit is not None:
        if not is_kept(body, limit) or given[limit].dtype not in _INTEGERS:
            return None
        return Bound(given[counter], given[limit], beyond, step)
    number = _number(origin(both[higher]))
    return None if number is None else Bound(given[counter], number, beyond, step)


def _variable(graph: ir.Graph, value: Value) -> int | None:
    """The index of the loop variable that a value is."""
    found = origin(value)
    return next((index for index, formal in enumerate(graph.inputs) if formal is found), None)


def writing_counter(body: ir.Graph, index: int) -> int | None:
    """The variable that is the index of the writes to a list that the loop does not read."""
    result = body.outputs[index]
    node = origin(result).producer()
    names = WRITES.get(node.op_type) if node is not None else None
    if node is None or names is None:
        return None
    given = arguments(node)
    formal = body.inputs[index]
    if origin(given[names[0]]) is not formal or not _leads_only_to(formal, node):
        return None
    if not _is_only_returned(node.outputs[0], result):
        return None
    return _variable(body, given[names[1]])


def _leads_only_to(value: Value, node: ir.Node) -> bool:
    """Whether a value has a single reader, apart from Identity nodes."""
    while True:
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output():
            return False
        if uses[0].node is node:
            return True
        value = uses[0].node.outputs[0]


def _is_only_returned(value: Value, result: Value) -> bool:
    """Whether a value is only a result of its graph, apart from Identity nodes."""
    while value is not result:
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output():
            return False
        value = uses[0].node.outputs[0]
    return not value.uses()

"""Analyses loop variables in the source graph: invariants, counters, and lists written in order."""

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ...registration import Value
from ...registration.arguments import arguments

_IDENTITIES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics"})
_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})
WRITES = {"TensorListSetItem": ("input_handle", "index"), "TensorArrayWriteV3": ("flow_in", "index")}
"""The operators that write an element of a list, with the names of their arguments list and position."""
_COMPARISONS = {
    "Less": ("x", "y", 0),
    "LessEqual": ("x", "y", 1),
    "Greater": ("y", "x", 0),
    "GreaterEqual": ("y", "x", 1),
}
"""The lower and the higher argument of each comparison, and the number to add to the higher one to make it an
exclusive limit.
"""


def origin(value: Value) -> Value:
    """Skip Identity nodes."""
    node = value.producer()
    while node is not None and node.op_type in _IDENTITIES and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def is_invariant(body: ir.Graph, index: int) -> bool:
    """Whether a variable is loop-invariant."""
    return origin(body.outputs[index]) is body.inputs[index]


def step_of(body: ir.Graph, index: int) -> int | None:
    """The constant that each iteration adds to an integer variable; None for other updates."""
    formal, result = body.inputs[index], origin(body.outputs[index])
    node = result.producer()
    if node is None or node.op_type not in ("Add", "AddV2") or result.dtype not in _INTEGERS:
        return None
    node_arguments = arguments(node)
    terms = [origin(node_arguments["x"]), origin(node_arguments["y"])]
    # The variable may be either operand.
    for first_term, second_term in (terms, terms[::-1]):
        if first_term is formal:
            return _constant_integer(second_term)
    return None


def _constant_integer(value: Value) -> int | None:
    tensor = value.const_value
    if tensor is None or len(tensor.shape) or value.dtype not in _INTEGERS:
        return None
    return int(tensor.numpy())


@dataclasses.dataclass(frozen=True)
class CounterBound:
    """A counter and the limit below which the loop continues.

    Attributes:
        start: the counter's value before the loop.
        limit: the limit, a value before the loop or a number.
        limit_offset: the number to add to the limit: 1 if the loop also runs for the limit itself.
        step: the number that an iteration adds, more than 0.
    """

    start: Value
    limit: Value | int
    limit_offset: int
    step: int


def bounds_of(
    condition: ir.Graph, body: ir.Graph, initial_values: Sequence[Value]
) -> list[CounterBound] | None:
    """The bounds in a loop's condition; None if the condition contains anything else."""
    bounds = []
    for conjunct in _conjuncts(condition.outputs[0]):
        bound = _bound(conjunct, condition, body, initial_values)
        if bound is None:
            return None
        bounds.append(bound)
    return bounds


def _conjuncts(value: Value) -> Iterator[Value]:
    """The operands of a conjunction."""
    pending = [value]
    while pending:
        value = origin(pending.pop())
        node = value.producer()
        if node is not None and node.op_type == "LogicalAnd":
            operands = arguments(node)
            pending += [operands["x"], operands["y"]]
        else:
            yield value


def _bound(
    value: Value, condition: ir.Graph, body: ir.Graph, initial_values: Sequence[Value]
) -> CounterBound | None:
    node = value.producer()
    comparison = _COMPARISONS.get(node.op_type) if node is not None else None
    if node is None or comparison is None:
        return None
    lower, higher, limit_offset = comparison
    operands = arguments(node)
    counter, limit = _variable(condition, operands[lower]), _variable(condition, operands[higher])
    # Sums of floats are rounded, so the number of iterations could not be computed before the loop.
    if counter is None or initial_values[counter].dtype not in _INTEGERS:
        return None
    step = step_of(body, counter)
    # A counter that does not increase never reaches its upper limit.
    if step is None or step <= 0:
        return None
    if limit is not None:
        # A limit that changes in the loop is not known before it.
        if not is_invariant(body, limit) or initial_values[limit].dtype not in _INTEGERS:
            return None
        return CounterBound(initial_values[counter], initial_values[limit], limit_offset, step)
    number = _constant_integer(origin(operands[higher]))
    return None if number is None else CounterBound(initial_values[counter], number, limit_offset, step)


def _variable(graph: ir.Graph, value: Value) -> int | None:
    """The index of the loop variable that a value equals; None if it is another value."""
    source = origin(value)
    return next((index for index, formal in enumerate(graph.inputs) if formal is source), None)


def writing_counter(body: ir.Graph, index: int) -> int | None:
    """The index of the variable that counts the writes to a list; None if the loop also reads the list."""
    result = body.outputs[index]
    node = origin(result).producer()
    names = WRITES.get(node.op_type) if node is not None else None
    if node is None or names is None:
        return None
    node_arguments = arguments(node)
    formal = body.inputs[index]
    if origin(node_arguments[names[0]]) is not formal or not _is_read_only_by(formal, node):
        return None
    if not _is_only_returned(node.outputs[0], result):
        return None
    return _variable(body, node_arguments[names[1]])


def _is_read_only_by(value: Value, node: ir.Node) -> bool:
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

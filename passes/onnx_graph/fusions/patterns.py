"""Helpers that recognise written-out operators by walking from a value to the nodes that compute it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ....registration import schemas
from ....registration.inference.constant_integers import argument
from ....registration.origins import inherit
from ..constants.initializers import Initializers
from ..node_pass import new_node


def exclusive_producer(value: ir.Value | None, *op_types: str, readers: int = 1) -> ir.Node | None:
    """The node that computes a value, if it has one of these types and the value exactly so many readers."""
    node = value.producer() if value is not None else None
    if node is None or value is None or node.domain or node.op_type not in op_types:
        return None
    # With another reader the node would stay, and fusing would compute its value twice.
    if value is not node.outputs[0] or value.is_graph_output() or len(value.uses()) != readers:
        return None
    return node


def operands(node: ir.Node, op_type: str) -> tuple[ir.Node, ir.Value] | None:
    """The producer of one operand of a binary node, and the other operand.

    The producer has the requested type, and nothing else reads its result.
    """
    a, b = node.inputs
    for first, second in ((a, b), (b, a)):
        producer = exclusive_producer(first, op_type)
        if producer is not None and second is not None:
            return producer, second
    return None


def number(value: ir.Value | None) -> float | None:
    """The number in a constant of one element that callers cannot replace."""
    if value is None or value.const_value is None or value.const_value.size != 1 or value.is_graph_input():
        return None
    return float(value.const_value.numpy().item())


def constant_operand(node: ir.Node) -> tuple[ir.Value, float] | None:
    """The operands of a binary node that has one number: the other operand, and the number."""
    a, b = node.inputs
    for first, second in ((a, b), (b, a)):
        constant = number(second)
        if first is not None and constant is not None:
            return first, constant
    return None


def reduced_axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction that keeps its dimensions, from an attribute or a constant; None if unknown."""
    keepdims = node.attributes.get("keepdims")
    if keepdims is not None and keepdims.as_int() != 1:
        return None
    return argument(node, "axes", 1)


def added_axes(unsqueeze: ir.Node) -> list[int] | None:
    """The axes that an Unsqueeze adds, as negative numbers; None if they or the rank are unknown."""
    result, axes = unsqueeze.outputs[0].shape, argument(unsqueeze, "axes", 1)
    if result is None or axes is None:
        return None
    # Counted from the end, axes are comparable between values of different ranks.
    return [axis % len(result) - len(result) for axis in axes]


def is_last_axis(axes: Sequence[int] | None, value: ir.Value) -> bool:
    """Whether axes are the last one of a value."""
    if axes is None:
        return False
    return [*axes] == [-1] or (value.shape is not None and [*axes] == [len(value.shape) - 1])


def insert_node(
    successor: ir.Node,
    initializers: Initializers,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    shape: ir.Shape | None,
    attributes: Sequence[ir.Attr] = (),
    dtype: ir.DataType | None = None,
) -> ir.Value:
    """The result of a new node before another, by default of the element type of its first input."""
    inserted = new_node(initializers, op_type, inputs, shape, attributes)
    if dtype is not None:
        inserted.outputs[0].type = ir.TensorType(dtype)
    assert successor.graph is not None
    successor.graph.insert_before(successor, inserted)
    inherit(inserted, successor)
    return inserted.outputs[0]


def replace(
    last: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], opset: int
) -> None:
    """Replace the nodes that end in `last` by one operator.

    Attributes equal to their default are left out.
    """
    written_attributes = [
        attribute for attribute in attributes if not schemas.omissible(op_type, "", opset, attribute)
    ]
    name = f"{last.name or last.outputs[0].name}_fused"
    # The old name is still taken; the fused node keeps a related one.
    fused = ir.Node("", op_type, inputs, written_attributes, num_outputs=1, name=name)
    result, old, graph = fused.outputs[0], last.outputs[0], last.graph
    result.type, result.shape, result.name = old.type, old.shape, f"{old.name}_fused"
    assert graph is not None
    graph.insert_before(last, fused)
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    inherit(fused, last, *_remove_unread(last))


def _remove_unread(node: ir.Node) -> list[ir.Node]:
    """Remove a node that nothing reads, and the nodes that only it needed; return the removed nodes."""
    pending, removed = [node], []
    while pending:
        current = pending.pop()
        if current.graph is None or any(
            output.uses() or output.is_graph_output() for output in current.outputs
        ):
            continue
        producers = [value.producer() for value in current.inputs if value is not None]
        current.graph.remove(current, safe=True)
        removed.append(current)
        pending += [producer for producer in producers if producer is not None]
    return removed

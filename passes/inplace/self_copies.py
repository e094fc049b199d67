"""Removes copies of a tensor into itself: `self.table = self.table.to(x.device)` on the same device."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from ...registration.arguments import arguments, blocks
from ..source_builder import take_out
from .views import aliased, may_be_view, view_rule


def remove_self_copies(graph: ir.Graph) -> bool:
    """Remove copies of a tensor into itself from a graph and its blocks; return whether there was one."""
    found = False
    for node in list(graph):
        if node.op_type == "copy_" and node.domain == "aten":
            destination, source = list(arguments(node).values())[:2]
            are_tensors = isinstance(destination, Value) and isinstance(source, Value)
            if are_tensors and _whole(destination) is _whole(source):
                for output in node.outputs:
                    output.replace_all_uses_with(destination, replace_graph_outputs=True)
                take_out(node)
                found = True
        elif len(node.attributes) > 1:
            for block in blocks(node):
                found |= remove_self_copies(block)
    return found


def _whole(value: Value) -> Value:
    """The value of which a value is the same tensor, or a view of all its elements in their order."""
    node = value.producer()
    while node is not None and may_be_view(node):
        given = arguments(node)
        rule = view_rule(node, given)
        if rule is None or rule.undecided or not (rule.same_object or rule.is_identity):
            break
        source = aliased(node, rule, given)[value.index() or 0]
        if source is None:
            break
        value, node = source, source.producer()
    return value

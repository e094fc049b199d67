"""Removes copies of a tensor into itself: `self.table = self.table.to(x.device)` on the same device."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from ...registration.arguments import arguments, blocks
from ..source_builder import detach_node
from .views import aliased_tensors, may_be_view, view_rule


def remove_self_copies(graph: ir.Graph) -> bool:
    """Remove copies of a tensor into itself from a graph and its blocks; return whether there was one."""
    modified = False
    for node in list(graph):
        if node.op_type == "copy_" and node.domain == "aten":
            destination, source = list(arguments(node).values())[:2]
            are_tensors = isinstance(destination, Value) and isinstance(source, Value)
            if are_tensors and _identity_source(destination) is _identity_source(source):
                for output in node.outputs:
                    output.replace_all_uses_with(destination, replace_graph_outputs=True)
                detach_node(node)
                modified = True
        elif len(node.attributes) > 1:
            for block in blocks(node):
                modified |= remove_self_copies(block)
    return modified


def _identity_source(value: Value) -> Value:
    """Follow views that keep all elements in order back to the first value with the same elements."""
    node = value.producer()
    while node is not None and may_be_view(node):
        node_arguments = arguments(node)
        rule = view_rule(node, node_arguments)
        if rule is None or rule.undecided or not (rule.same_object or rule.is_identity):
            break
        source = aliased_tensors(node, rule, node_arguments)[value.index() or 0]
        if source is None:
            break
        value, node = source, source.producer()
    return value

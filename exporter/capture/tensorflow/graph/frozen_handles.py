"""Repairs graphs that older tools froze incompletely.

These tools replace the handle of a variable by a Const with its value, but leave the nodes in branches that
pass on the handle and read it: a ReadVariableOp of a Switch of a Const.
"""

from collections.abc import Iterable, Mapping

from ..messages import AttrValue, message_type
from .nodes import Define, GraphNode

_PASS_ON = frozenset("Enter Identity RefEnter RefIdentity RefSwitch Switch".split())
"""The operators that return the handle in their first input."""


def read_constants(nodes: Mapping[str, GraphNode], define: Define) -> None:
    """Turn reads of constants into Identity nodes, and give the nodes in between the constants' types."""
    for node in nodes.values():
        if node.op != "ReadVariableOp" or not node.inputs:
            continue
        handle_nodes = list(_handle_nodes(node.inputs[0].node))
        constant = handle_nodes.pop() if handle_nodes else None
        if constant is None or constant.op != "Const" or not constant.has("dtype"):
            continue
        dtype = constant.attribute("dtype")
        for handle_node in handle_nodes:
            _set_type(handle_node, dtype)
        # The handle already is the value: reading it returns it unchanged.
        node.op, node.definition = "Identity", define("Identity")
        _set_type(node, dtype)


def _handle_nodes(node: GraphNode) -> Iterable[GraphNode]:
    """The nodes that pass on a handle, from a reader's input back to the node that creates it."""
    seen: set[GraphNode] = set()
    while node not in seen:
        seen.add(node)
        yield node
        if node.op in _PASS_ON and node.inputs:
            node = node.inputs[0].node


def _set_type(node: GraphNode, dtype: AttrValue) -> None:
    other_attributes = {
        name: value for name, value in node.stated_attributes.items() if name not in ("T", "dtype")
    }
    node.stated_attributes = {**other_attributes, "T": message_type("AttrValue")(type=dtype.type)}

"""Reads of variables whose values are constants of the graph already.

Older tools that freeze graphs replace the handle of a variable by a Const with its value, and leave nodes in
branches that pass the handle on and read it: ReadVariableOp of a Switch of a Const.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..messages import message_type
from .nodes import Define, Node

_PASS_ON = frozenset("Enter Identity RefEnter RefIdentity RefSwitch Switch".split())
"""The operators that pass a handle on from their first input."""


def read_constants(nodes: Mapping[str, Node], define: Define) -> None:
    """Turn reads of constants into Identity nodes, and give the nodes in between the constants' types.

    Args:
        nodes: changed in place.
    """
    for node in nodes.values():
        if node.op != "ReadVariableOp" or not node.inputs:
            continue
        passed = list(_handles(node.inputs[0].node))
        source = passed.pop() if passed else None
        if source is None or source.op != "Const" or not source.has("dtype"):
            continue
        dtype = source.attribute("dtype")
        for between in passed:
            _retype(between, dtype)
        node.op, node.definition = "Identity", define("Identity")
        _retype(node, dtype)


def _handles(node: Node) -> Iterable[Node]:
    """The nodes that a handle comes through, ending with the one that makes it."""
    seen: set[Node] = set()
    while node not in seen:
        seen.add(node)
        yield node
        if node.op in _PASS_ON and node.inputs:
            node = node.inputs[0].node


def _retype(node: Node, dtype: Any) -> None:
    others = {name: value for name, value in node.stored.items() if name not in ("T", "dtype")}
    node.stored = {**others, "T": message_type("AttrValue")(type=dtype.type)}

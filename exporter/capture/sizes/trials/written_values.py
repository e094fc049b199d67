"""The values of a captured graph to whose memory its operators write."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch.fx

from .....passes.inplace.views import DROPOUTS
from ....torch_boundary.operators.overloads import OpOverload, schema_of
from .neutral_calls import may_be_neutral

COPIES = frozenset(f"aten::{name}" for name in "clone contiguous flatten ravel reshape reshape_as".split())
"""Operators that copy, or return their argument or a view of it: sizes may decide which."""
_DROPOUTS = frozenset(f"aten::{name}_" for name in DROPOUTS)
"""Operators that write only in training."""


class WrittenValues:
    """Finds the values that may share memory with one to which an operator writes.

    Args:
        user_inputs: the names of the inputs of the call, which share no memory with others.

    Attributes:
        tensors: these values.
        copies: the calls among them to whose memory an operator writes later, so that it matters whether they
            copy. It does not if the result is not written to itself, and no longer used when its argument is.
    """

    def __init__(self, graph: torch.fx.Graph, user_inputs: Container[object] = ()):
        self._parents: dict[torch.fx.Node, torch.fx.Node] = {}
        self._views: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        writes: list[tuple[int, torch.fx.Node]] = []
        stored = [
            node
            for node in graph.nodes
            if node.op in ("placeholder", "get_attr") and node.name not in user_inputs
        ]
        for node in stored:
            # Weights may be views of one tensor.
            self._join(node, stored[0])
        positions = {node: position for position, node in enumerate(graph.nodes)}
        for node, position in positions.items():
            if node.op == "call_function":
                writes += ((position, written) for written in self._follow(node))
        self._positions = positions
        self._writes: dict[torch.fx.Node, list[tuple[int, torch.fx.Node]]] = {}
        for position, node in writes:
            self._writes.setdefault(self._root(node), []).append((position, node))
        last_writes = {root: entries[-1][0] for root, entries in self._writes.items()}
        self.tensors = (
            [node for node in self._parents if self._root(node) in last_writes] if last_writes else []
        )
        copies = (node for node in self.tensors if _may_copy(_name(node)))
        self.copies = {
            node
            for node in copies
            if positions[node] < last_writes[self._root(node)] and not self._is_used_up(node)
        }

    def _is_used_up(self, node: torch.fx.Node) -> bool:
        """Whether a result is never written to, and has its last use before a write to what shares memory."""
        views = [node]
        for view in views:
            views += (further for further in self._views.get(view, ()) if further not in views)
        entries = self._writes[self._root(node)]
        first_write = min(position for position, _ in entries if position > self._positions[node])
        last_use = max((self._positions[user] for view in views for user in view.users), default=0)
        return last_use < first_write and not any(written in views for _, written in entries)

    def _follow(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """Record the nodes that share memory with a node; yields the arguments to which it writes."""
        target = node.target
        if not isinstance(target, OpOverload):
            for input_node in node.all_input_nodes:
                self._join(node, input_node)
            return
        schema = schema_of(target)
        is_copy = _may_copy(schema.name)
        names = [formal.name for formal in schema.arguments]
        arguments: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
        is_idle = schema.name in _DROPOUTS and not arguments["train"]
        for position, formal in enumerate(schema.arguments):
            actual = arguments.get(formal.name)
            nodes = actual if isinstance(actual, (list, tuple)) else [actual]
            for input_node in (item for item in nodes if isinstance(item, torch.fx.Node)):
                if formal.alias_info is not None or (is_copy and position == 0):
                    self._join(node, input_node)
                if formal.alias_info is not None and formal.alias_info.is_write and not is_idle:
                    yield input_node

    def _join(self, node: torch.fx.Node, second_node: torch.fx.Node) -> None:
        self._views.setdefault(second_node, []).append(node)
        first, second = self._root(node), self._root(second_node)
        if first is not second:
            self._parents[first] = second

    def _root(self, node: torch.fx.Node) -> torch.fx.Node:
        """The representative of the group of nodes that may share memory with a node."""
        path = []
        while self._parents.setdefault(node, node) is not node:
            path.append(node)
            node = self._parents[node]
        for member in path:
            self._parents[member] = node
        return node


def _may_copy(name: str | None) -> bool:
    """Whether an operator copies, or the model skips it at some sizes, because it changes nothing there."""
    return name is not None and (name in COPIES or may_be_neutral(name))


def _name(node: torch.fx.Node) -> str | None:
    return schema_of(node.target).name if isinstance(node.target, OpOverload) else None

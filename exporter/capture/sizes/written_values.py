"""The values of a captured graph to whose memory its operators write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.fx

from ....passes.inplace.views import DROPOUTS
from ...torch_boundary.operators.overloads import OpOverload, schema_of

COPIES = frozenset(f"aten::{name}" for name in "clone contiguous flatten ravel reshape reshape_as".split())
"""Operators that copy, or return their argument or a view of it: sizes may decide which."""
_DROPOUTS = frozenset(f"aten::{name}_" for name in DROPOUTS)
"""Operators that write only in training."""


class WrittenValues:
    """Finds the values that may share memory with one to which an operator writes.

    Attributes:
        tensors: these values.
        copies: the calls of `COPIES` among them to whose memory an operator writes later, so that it matters
            whether they copy.
    """

    def __init__(self, graph: torch.fx.Graph):
        self._first: dict[torch.fx.Node, torch.fx.Node] = {}
        writes: list[tuple[int, torch.fx.Node]] = []
        inputs = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
        for node in inputs:
            # Weights may be views of one tensor.
            self._join(node, inputs[0])
        places = {node: place for place, node in enumerate(graph.nodes)}
        for node, place in places.items():
            if node.op == "call_function":
                writes += ((place, written) for written in self._follow(node))
        last = {self._find(node): place for place, node in writes}
        self.tensors = [node for node in self._first if self._find(node) in last] if last else []
        copies = (node for node in self.tensors if _name(node) in COPIES)
        self.copies = {node for node in copies if places[node] < last[self._find(node)]}

    def _follow(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """Note what shares memory with a node; yields the arguments to which it writes."""
        target = node.target
        if not isinstance(target, OpOverload):
            for each in node.all_input_nodes:
                self._join(node, each)
            return
        schema = schema_of(target)
        is_copy = schema.name in COPIES
        names = [formal.name for formal in schema.arguments]
        arguments: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
        is_idle = schema.name in _DROPOUTS and not arguments["train"]
        for position, formal in enumerate(schema.arguments):
            given = arguments.get(formal.name)
            nodes = given if isinstance(given, (list, tuple)) else [given]
            for each in (item for item in nodes if isinstance(item, torch.fx.Node)):
                if formal.alias_info is not None or (is_copy and position == 0):
                    self._join(node, each)
                if formal.alias_info is not None and formal.alias_info.is_write and not is_idle:
                    yield each

    def _join(self, node: torch.fx.Node, other: torch.fx.Node) -> None:
        first, second = self._find(node), self._find(other)
        if first is not second:
            self._first[first] = second

    def _find(self, node: torch.fx.Node) -> torch.fx.Node:
        """The node that stands for a group."""
        path = []
        while self._first.setdefault(node, node) is not node:
            path.append(node)
            node = self._first[node]
        for each in path:
            self._first[each] = node
        return node


def _name(node: torch.fx.Node) -> str | None:
    return schema_of(node.target).name if isinstance(node.target, OpOverload) else None

"""Unique names for the values and nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ..arguments import graphs_of


def names_of(graph: ir.Graph) -> Iterator[str]:
    """The names of all values and nodes of one graph, without its sub-graphs."""
    nodes = list(graph)
    names = [value.name for value in (*graph.inputs, *graph.initializers.values())]
    names += [node.name for node in nodes]
    names += [value.name for node in nodes for value in node.outputs]
    return filter(None, names)


class Names:
    """Unique names for the values and nodes of one graph, its sub-blocks included."""

    __slots__ = ("_counts", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, graph: ir.Graph) -> Names:
        """Make an object with the names that a graph and its sub-graphs use."""
        names = cls()
        names.take_all(graph)
        return names

    def take(self, name: str) -> None:
        """Reserve a given name."""
        self._taken.add(name)

    def take_all(self, graph: ir.Graph) -> None:
        """Reserve the names that a graph and its sub-graphs use."""
        for subgraph in graphs_of(graph):
            self._taken.update(names_of(subgraph))

    def is_taken(self, name: str) -> bool:
        """Whether a name is in use or reserved."""
        return name in self._taken

    def unique(self, stem: str) -> str:
        """Return and reserve the stem, or the stem with a number that makes it unique."""
        name = stem
        while name in self._taken:
            # Counting on from the last number makes many nodes of one name linear instead of quadratic.
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

"""Checks the names of graphs and sub-graphs: each is defined once, before its use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .....registration import ModelFileError
from ..names import quoted


@dataclasses.dataclass
class NameScope:
    """The names of one graph.

    Attributes:
        title: the graph's name in error messages.
        outer: the scope of the enclosing graph.
        defined: the names defined so far.
        defined_later: the names that later nodes define.
        unsorted: whether a node reads a value that a later one defines.
    """

    title: str
    outer: NameScope | None = None
    defined: set[str] = dataclasses.field(default_factory=set)
    defined_later: set[str] = dataclasses.field(default_factory=set)
    unsorted: bool = False

    def define(self, names: Iterable[str], role: str) -> None:
        """Define names of inputs and initializers."""
        for name in names:
            if not name:
                raise ModelFileError(f"{role} of {self.title} has no name")
            if name in self.defined:
                raise ModelFileError(f"{quoted(name)} is defined twice in {self.title}")
            self.defined.add(name)

    def announce(self, names: Iterable[str]) -> None:
        """Add the names that nodes will define."""
        for name in names:
            if name and (name in self.defined or name in self.defined_later):
                raise ModelFileError(f"{quoted(name)} is defined twice in {self.title}")
            if name:
                self.defined_later.add(name)

    def mark_defined(self, names: Iterable[str]) -> None:
        """Mark the outputs of a node as defined."""
        self.defined.update(name for name in names if name)
        self.defined_later.difference_update(names)

    def resolve(self, name: str, reader: str) -> None:
        """Resolve a name that a node reads.

        A node may read the output of a later node of the same graph; the nodes are sorted then. If an outer
        graph has the same name, it is unclear which one is meant.

        Raises:
            ModelFileError: no node computes the name, or it is ambiguous.
        """
        scope: NameScope | None = self
        waiting: NameScope | None = None
        while scope is not None:
            if name in scope.defined:
                if waiting is not None:
                    raise ModelFileError(
                        f"{reader} reads {quoted(name)}, which {waiting.title} computes later, although "
                        f"{scope.title} has that name, too"
                    )
                return
            if name in scope.defined_later and waiting is None:
                waiting = scope
            scope = scope.outer
        if waiting is None:
            raise ModelFileError(f"{reader} reads {quoted(name)}, which no node before it computes")
        waiting.unsorted = True

    def defines(self, name: str) -> bool:
        """Whether this graph itself defines a name."""
        return name in self.defined or name in self.defined_later

"""Checks the names of graphs and sub-graphs: each is defined once, before its use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .....registration import ModelFileError
from ..names import quoted


@dataclasses.dataclass
class Scope:
    """The names of one graph.

    Attributes:
        title: the graph's name in error messages.
        outer: the scope of the enclosing graph.
        made: the names made so far.
        later: the names that later nodes make.
        unsorted: whether a node reads a value that a later one makes.
    """

    title: str
    outer: Scope | None = None
    made: set[str] = dataclasses.field(default_factory=set)
    later: set[str] = dataclasses.field(default_factory=set)
    unsorted: bool = False

    def make(self, names: Iterable[str], what: str) -> None:
        """Define names of inputs and initializers."""
        for name in names:
            if not name:
                raise ModelFileError(f"{what} of {self.title} has no name")
            if name in self.made:
                raise ModelFileError(f"{quoted(name)} is defined twice in {self.title}")
            self.made.add(name)

    def announce(self, names: Iterable[str]) -> None:
        """Add the names that nodes will define."""
        for name in names:
            if name and (name in self.made or name in self.later):
                raise ModelFileError(f"{quoted(name)} is defined twice in {self.title}")
            if name:
                self.later.add(name)

    def reach(self, names: Iterable[str]) -> None:
        """Mark the outputs of a node as defined."""
        self.made.update(name for name in names if name)
        self.later.difference_update(names)

    def read(self, name: str, reader: str) -> None:
        """Resolve a name that a node reads.

        A node may read the output of a later node of the same graph; the nodes are sorted then. If an outer
        graph has the same name, it is unclear which one is meant.

        Raises:
            ModelFileError: no node computes the name, or it is ambiguous.
        """
        scope: Scope | None = self
        waiting: Scope | None = None
        while scope is not None:
            if name in scope.made:
                if waiting is not None:
                    raise ModelFileError(
                        f"{reader} reads {quoted(name)}, which {waiting.title} computes later, although "
                        f"{scope.title} has that name, too"
                    )
                return
            if name in scope.later and waiting is None:
                waiting = scope
            scope = scope.outer
        if waiting is None:
            raise ModelFileError(f"{reader} reads {quoted(name)}, which no node before it computes")
        waiting.unsorted = True

    def is_made(self, name: str) -> bool:
        """Whether this graph itself defines a name."""
        return name in self.made or name in self.later

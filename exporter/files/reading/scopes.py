"""Which names a graph and the graphs within it make and read: each made once, and made before it is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ....registration import ModelFileError
from .names import quoted


@dataclasses.dataclass
class Scope:
    """The names of one graph.

    Attributes:
        title: the graph, as an error names it.
        outer: the graph around it.
        made: the names made so far.
        later: the names that a node further on makes.
        unsorted: whether a node reads what a later one makes.
    """

    title: str
    outer: Scope | None = None
    made: set[str] = dataclasses.field(default_factory=set)
    later: set[str] = dataclasses.field(default_factory=set)
    unsorted: bool = False

    def make(self, names: Iterable[str], what: str) -> None:
        """Add names that stand for themselves from the start."""
        for name in names:
            if not name:
                raise ModelFileError(f"{what} of {self.title} has no name")
            if name in self.made:
                raise ModelFileError(f"{quoted(name)} is made twice in {self.title}")
            self.made.add(name)

    def announce(self, names: Iterable[str]) -> None:
        """Add what the nodes will make."""
        for name in names:
            if name and (name in self.made or name in self.later):
                raise ModelFileError(f"{quoted(name)} is made twice in {self.title}")
            if name:
                self.later.add(name)

    def reach(self, names: Iterable[str]) -> None:
        """A node that made these has been passed."""
        self.made.update(name for name in names if name)
        self.later.difference_update(names)

    def read(self, name: str, reader: str) -> None:
        """Find what a name that a node reads stands for.

        What a later node of the same graph makes may be read, and the nodes are sorted for that. Where an
        outer graph has the name as well, it is not said which of the two is meant.

        Raises:
            ModelFileError: nothing makes it, or it is not clear what does.
        """
        scope: Scope | None = self
        waiting: Scope | None = None
        while scope is not None:
            if name in scope.made:
                if waiting is not None:
                    raise ModelFileError(
                        f"{reader} reads {quoted(name)}, which {waiting.title} makes later, and "
                        f"{scope.title} has as well"
                    )
                return
            if name in scope.later and waiting is None:
                waiting = scope
            scope = scope.outer
        if waiting is None:
            raise ModelFileError(f"{reader} reads {quoted(name)}, which nothing before it makes")
        waiting.unsorted = True

    def is_made(self, name: str) -> bool:
        """Whether this graph itself makes a name."""
        return name in self.made or name in self.later

"""Sets of items that are joined step by step (union-find)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
U = TypeVar("U", bound=Hashable)


class DisjointSets(Generic[T]):
    """Items in disjoint sets. An item that was not joined to another one is a set of its own."""

    def __init__(self) -> None:
        self._parents: dict[T, T] = {}

    def root(self, item: T) -> T:
        """The item that represents the set of an item."""
        while (parent := self._parents.get(item)) is not None:
            # Each walk halves the path for the next one.
            above = self._parents.get(parent, parent)
            self._parents[item] = above
            item = above
        return item

    def join(self, a: T, b: T) -> None:
        """Join the sets of two items; that of the second item keeps its root."""
        a, b = self.root(a), self.root(b)
        if a != b:
            self._parents[a] = b

    def groups(self, items: Iterable[U]) -> list[list[U]]:
        """Items grouped by their sets, in the order of the first item of each."""
        groups: dict[T, list[U]] = {}
        for item in items:
            groups.setdefault(self.root(item), []).append(item)  # type: ignore[arg-type]
        return list(groups.values())

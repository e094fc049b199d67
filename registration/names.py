"""Unique names for the values and nodes of a graph."""

from __future__ import annotations


class Names:
    """Unique names for the values and nodes of one graph, its sub-blocks included."""

    __slots__ = ("_counts", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> None:
        """Reserve a given name."""
        self._taken.add(name)

    def is_taken(self, name: str) -> bool:
        """Whether a name is in use or reserved."""
        return name in self._taken

    def unique(self, stem: str) -> str:
        """The stem, or the stem with the lowest number that makes it unique."""
        name = stem
        while name in self._taken:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

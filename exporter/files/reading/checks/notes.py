"""Records the parts of a file left out on reading because they do not affect the computation."""

from __future__ import annotations

from ..names import listed


class Notes:
    """The kinds of parts left out, and the names that they belonged to."""

    def __init__(self) -> None:
        self._names_by_part: dict[str, list[str]] = {}

    def add(self, part: str, name: str) -> None:
        """Record that a kind of part, a plural noun, was omitted from `name`."""
        self._names_by_part.setdefault(part, []).append(name)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each kind of omitted part."""
        return tuple(f"{part}: {listed(names)}" for part, names in self._names_by_part.items())

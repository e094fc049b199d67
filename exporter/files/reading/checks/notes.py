"""Records the parts of a file left out on reading because they do not affect the computation."""

from __future__ import annotations

from ..names import listed


class Notes:
    """The kinds of parts left out, and the names that they belonged to."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Record that `what` of `name` was omitted."""
        self._found.setdefault(what, []).append(name)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each kind of omitted part."""
        return tuple(f"{what}: {listed(names)}" for what, names in self._found.items())

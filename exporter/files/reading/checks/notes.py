"""Records the parts of a file left out on reading because they do not affect the computation."""

from __future__ import annotations

from ..names import listed


class Notes:
    """The kinds of parts left out, and the names that they belonged to."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Record that `what`, which belonged to `name`, was left out."""
        self._found.setdefault(what, []).append(name)

    def sentences(self) -> tuple[str, ...]:
        """A sentence for each kind."""
        return tuple(f"{what}: {listed(names)}" for what, names in self._found.items())

"""What was left out of a model on reading, because it says nothing of what the model computes."""

from __future__ import annotations

from .names import listed


class Notes:
    """Kinds of things left out, and of what they were."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Note that `what` was left out, which belonged to `name`."""
        self._found.setdefault(what, []).append(name)

    def sentences(self) -> tuple[str, ...]:
        """One for each kind."""
        return tuple(f"{what}: {listed(names)}" for what, names in self._found.items())

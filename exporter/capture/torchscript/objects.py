"""What a TorchScript value is while a graph is read: a Python constant, a source value, or one of these."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

from ....registration import NUMBER


class Uninitialized:
    """`prim::Uninitialized`: a value that no path of the program reads."""


UNINITIALIZED = Uninitialized()


class UnknownText(str):
    """A text that holds computed numbers, of an error message or a warning."""


@dataclasses.dataclass(eq=False)
class List:
    """A TorchScript list, which is mutable and known by its identity.

    Attributes:
        items: its elements, where its length is known.
        value: the list as one source value, where it is not.
        kind: the TorchScript type of its elements, `Tensor` or `int`.
    """

    items: list[Any] | None
    value: ir.Value | None = None
    kind: str = "Tensor"
    born: int = 0

    def state(self) -> tuple[list[Any] | None, ir.Value | None]:
        """What a branch may change."""
        return (None if self.items is None else list(self.items), self.value)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        self.items, self.value = state
        self.items = None if self.items is None else list(self.items)


@dataclasses.dataclass(eq=False)
class Dict:
    """A TorchScript dict; its keys are constants."""

    entries: dict[Any, Any]
    born: int = 0

    def state(self) -> dict[Any, Any]:
        """What a branch may change."""
        return dict(self.entries)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        self.entries = dict(state)


@dataclasses.dataclass(eq=False)
class Object:
    """A module, or an instance of a TorchScript class.

    Attributes:
        handle: torch's own object, None for an instance that the program makes.
        path: where it stands below the module that is captured.
        attributes: what the program has set, and what of the handle has been read.
        changed: names of the attributes that the program has set.
    """

    handle: Any
    path: str
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    changed: set[str] = dataclasses.field(default_factory=set)
    born: int = 0

    def state(self) -> tuple[dict[str, Any], set[str]]:
        """What a branch may change."""
        return dict(self.attributes), set(self.changed)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        attributes, changed = state
        self.attributes, self.changed = dict(attributes), set(changed)


@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """None or a value, which a computed condition decides.

    Attributes:
        present: a symbolic bool, true where there is a value.
        value: the value; anything where there is none.
    """

    present: Any
    value: Any


Mutable = List | Dict | Object


def is_number(item: Any) -> bool:
    """Whether an item is a number, constant or computed."""
    return isinstance(item, (bool, int, float, complex)) or (
        isinstance(item, ir.Value) and NUMBER in item.metadata_props
    )


def number_kind(item: Any) -> str:
    """`int`, `float` or `bool` of a number."""
    return item.metadata_props[NUMBER] if isinstance(item, ir.Value) else type(item).__name__


def is_constant(item: Any) -> bool:
    """Whether an item holds nothing that the graph computes."""
    if isinstance(item, (ir.Value, Optional, UnknownText, Uninitialized)):
        return False
    if isinstance(item, List):
        return item.items is not None and all(map(is_constant, item.items))
    if isinstance(item, Dict):
        return all(map(is_constant, item.entries.values()))
    return all(map(is_constant, item)) if isinstance(item, tuple) else True


def same(a: Any, b: Any) -> bool:
    """Whether two items are certainly one: the same object, or equal constants of one type."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    plain = (bool, int, float, complex, str, type(None))
    return type(a) is type(b) and isinstance(a, plain) and (a == b or (a != a and b != b))

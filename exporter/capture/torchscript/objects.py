"""Items: during capture, a TorchScript value is a Python constant, a source value, or one of these."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

from ....registration import NUMBER


class Raised(Exception):
    """The program raises on every path from here."""


class WrittenConstant(Exception):
    """The program may write to a tensor made from constants, so that folded results may be wrong."""


class Uninitialized:
    """`prim::Uninitialized`: a value that no path of the program reads."""


UNINITIALIZED = Uninitialized()


class UnknownText(str):
    """A string with computed numbers, of an error message or a warning."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Shared:
    """A list or dict that may be one object under several names, depending on a computed condition.

    Attributes:
        sources: the objects of which this one is one, depending on the condition.
        derived: the objects that were made later and may be identical to this one.
        stale: whether it may have changed through another name, so that its contents are unknown.
        born: the interpreter's clock when it was made.
        choices: for the result of an If, the object that each branch returns.
        join: the If. Two results of the same If are compared branch by branch.
    """

    sources: list[Shared] = dataclasses.field(default_factory=list)
    derived: list[Shared] = dataclasses.field(default_factory=list)
    stale: bool = False
    born: int = 0
    choices: tuple[Any, Any] | None = None
    join: Any = None

    def may_be(self, *sources: Any) -> None:
        """Record that this is one of other objects."""
        for source in sources:
            if isinstance(source, Shared) and source is not self and source not in self.sources:
                self.sources.append(source)
                source.derived.append(self)

    def origins(self) -> list[Shared]:
        """This object and all objects that it may be identical to."""
        origins = [self]
        for item in origins:
            origins += [source for source in item.sources if source not in origins]
        return origins

    def change(self) -> list[Shared]:
        """Mark all objects that may be identical to this one as stale; return the newly stale ones."""
        staled: list[Shared] = []
        for side in ("sources", "derived"):
            waiting = list(getattr(self, side))
            for relative in waiting:
                waiting += [further for further in getattr(relative, side) if further not in waiting]
            staled += [relative for relative in waiting if not relative.stale]
        staled += [relative for relative in self._siblings() if not relative.stale and relative not in staled]
        for relative in staled:
            relative.stale = True
        return staled

    def _siblings(self) -> list[Shared]:
        """Other lists and dicts that may be identical to one of the origins of this one."""
        derived = [sibling for origin in self.origins() for sibling in origin.derived]
        return [
            sibling for sibling in dict.fromkeys(derived) if sibling is not self and may_be_one(self, sibling)
        ]


def may_be_one(first: Any, second: Any) -> bool:
    """Whether two names may refer to the same list or dict.

    The results of one If are compared branch by branch.
    """
    if not isinstance(first, Shared) or not isinstance(second, Shared):
        return False
    if first.join is not None and first.join is second.join and first is not second:
        return any(map(may_be_one, first.choices or (), second.choices or ()))
    return first is second or bool(set(first.origins()) & set(second.origins()))


@dataclasses.dataclass(eq=False)
class List(Shared):
    """A TorchScript list, which is mutable and compared by identity.

    Attributes:
        items: its elements, if its length is known.
        value: the list as one source value, if its length is unknown.
        element_type: the TorchScript type of its elements, `Tensor` or `int`.
    """

    items: list[Any] | None
    value: ir.Value | None = None
    element_type: str = "Tensor"

    def state(self) -> tuple[list[Any] | None, ir.Value | None]:
        """The state that a branch may change."""
        return (None if self.items is None else list(self.items), self.value)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        self.items, self.value = state
        self.items = None if self.items is None else list(self.items)


@dataclasses.dataclass(eq=False)
class Dict(Shared):
    """A TorchScript dict; its keys are constants."""

    entries: dict[Any, Any]

    def state(self) -> dict[Any, Any]:
        """The state that a branch may change."""
        return dict(self.entries)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        self.entries = dict(state)


@dataclasses.dataclass(eq=False)
class Object:
    """A module, or an instance of a TorchScript class.

    Attributes:
        handle: torch's object; None for an instance made by the program.
        path: its path below the captured module.
        attributes: the items that the program has set.
        changed: names of the attributes that the program has set.
        read_items: items read from the handle, valid unless the program has set them.
    """

    handle: Any
    path: str
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    changed: set[str] = dataclasses.field(default_factory=set)
    read_items: dict[str, Any] = dataclasses.field(default_factory=dict)
    born: int = 0

    def state(self) -> tuple[dict[str, Any], set[str]]:
        """The state that a branch may change."""
        return dict(self.attributes), set(self.changed)

    def restore(self, state: Any) -> None:
        """Go back to an earlier state."""
        attributes, changed = state
        self.attributes, self.changed = dict(attributes), set(changed)


@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """None or a value, depending on a computed condition.

    Attributes:
        present: a symbolic bool, true if there is a value.
        value: the value; arbitrary if there is none.
    """

    present: Any
    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Nested:
    """Sequences of different lengths, as a tensor that still has their padding.

    Attributes:
        padded: the tensor, of three dimensions.
        padding: a two-dimensional mask of positions that attention ignores.
        left_out: a mask of positions that become padding when the sequences are padded again.
    """

    padded: ir.Value
    padding: ir.Value
    left_out: ir.Value

    def like(self, padded: ir.Value) -> Nested:
        """Other sequences with the same lengths."""
        return dataclasses.replace(self, padded=padded)


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
    """Whether an item has no computed part."""
    if isinstance(item, (ir.Value, Optional, UnknownText, Uninitialized, Nested)):
        return False
    if isinstance(item, List):
        return item.items is not None and all(map(is_constant, item.items))
    if isinstance(item, Dict):
        return all(map(is_constant, item.entries.values()))
    return all(map(is_constant, item)) if isinstance(item, tuple) else True


def same(a: Any, b: Any) -> bool:
    """Whether two items are certainly identical: the same object, or equal constants of one type."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    plain = (bool, int, float, complex, str, type(None))
    return type(a) is type(b) and isinstance(a, plain) and (a == b or (a != a and b != b))

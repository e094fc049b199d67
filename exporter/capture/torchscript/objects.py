"""Items: during capture, a TorchScript value is a Python constant, a source value, or one of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import onnx_ir as ir
import torch

from ....registration import NUMBER, CaptureError
from .script_graph import Constant, ScriptHandle, StoredItem

Member = TypeVar("Member")
NumberItem: TypeAlias = bool | int | float | complex | ir.Value
"""A number, constant or computed."""
TensorItem: TypeAlias = ir.Value | torch.Tensor
"""A tensor, constant or computed."""
Item: TypeAlias = (
    "Constant | ir.Value | tuple[Item, ...] | List | Dict | Object | Optional | Nested | Uninitialized"
)
"""What a value of a TorchScript program evaluates to.

Constants are Python objects. A tensor or number that the program computes is a source value. Containers and
modules are evaluated: a list of unknown length is a `List` of one source value.
"""


class Raised(Exception):
    """The program raises on every path from here."""


class WrittenConstant(Exception):
    """The program may write to a tensor made from constants, so that folded results may be wrong."""


class Uninitialized:
    """`prim::Uninitialized`: a value that no path of the program reads."""


UNINITIALIZED = Uninitialized()


class UnknownText(str):
    """A string that depends on computed numbers: an error or a warning may show it, and nothing reads it."""


@dataclasses.dataclass
class Contents:
    """What the program may change of a list, dict or object; see their attributes of the same names."""

    items: list[Item] | None = None
    value: ir.Value | None = None
    entries: dict[Item, Item] = dataclasses.field(default_factory=dict)
    attributes: dict[str, Item] = dataclasses.field(default_factory=dict)
    changed: set[str] = dataclasses.field(default_factory=set)


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
    choices: tuple[Item, Item] | None = None
    join: object = None

    def may_be(self, *sources: object) -> None:
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
            # Relations are transitive within one direction: what it may come from, and what comes from it.
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


def may_be_one(first: object, second: object) -> bool:
    """Whether two names may refer to the same list or dict.

    The results of one If are compared branch by branch.
    """
    if not isinstance(first, Shared) or not isinstance(second, Shared):
        return False
    # Both results come from the same side, so only pairs of one side can be identical.
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

    items: list[Item] | None
    value: ir.Value | None = None
    element_type: str = "Tensor"

    def contents(self) -> Contents:
        """A copy of the current contents."""
        return Contents(items=None if self.items is None else list(self.items), value=self.value)

    def restore(self, contents: Contents) -> None:
        """Set the contents."""
        # A copy: the contents may be restored again, after the program has changed the list in place.
        self.items = None if contents.items is None else list(contents.items)
        self.value = contents.value


@dataclasses.dataclass(eq=False)
class Dict(Shared):
    """A TorchScript dict; its keys are constants."""

    entries: dict[Item, Item]

    def contents(self) -> Contents:
        """A copy of the current contents."""
        return Contents(entries=dict(self.entries))

    def restore(self, contents: Contents) -> None:
        """Set the contents."""
        self.entries = dict(contents.entries)


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

    handle: ScriptHandle | None
    path: str
    attributes: dict[str, Item] = dataclasses.field(default_factory=dict)
    changed: set[str] = dataclasses.field(default_factory=set)
    read_items: dict[str, Item] = dataclasses.field(default_factory=dict)
    born: int = 0

    def path_of(self, name: str) -> str:
        """The path of an attribute."""
        return f"{self.path}.{name}" if self.path else name

    def read_stored(self, name: str) -> StoredItem:
        """What TorchScript stores in an attribute; None for an instance made by the program."""
        return None if self.handle is None else self.handle.getattr(name)

    def contents(self) -> Contents:
        """A copy of the current attributes."""
        return Contents(attributes=dict(self.attributes), changed=set(self.changed))

    def restore(self, contents: Contents) -> None:
        """Set the attributes."""
        self.attributes, self.changed = dict(contents.attributes), set(contents.changed)


@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """None or a value, depending on a computed condition.

    Attributes:
        present: a symbolic bool, true if there is a value.
        value: the value; arbitrary if there is none.
    """

    present: Item
    value: Item


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


def rebuild_tuple(like: tuple[object, ...], members: Iterable[Member]) -> tuple[Member, ...]:
    """A tuple of the class of another one, which may be a named tuple."""
    rebuilt: tuple[Member, ...] = getattr(like, "_make", tuple)(members)
    return rebuilt


def is_number(item: object) -> TypeGuard[NumberItem]:
    """Whether an item is a number, constant or computed."""
    return isinstance(item, (bool, int, float, complex)) or (
        isinstance(item, ir.Value) and NUMBER in item.metadata_props
    )


def number_kind(item: Item) -> str:
    """`int`, `float` or `bool` of a number."""
    return item.metadata_props[NUMBER] if isinstance(item, ir.Value) else type(item).__name__


_KEEPS_TEXT = frozenset(
    f"aten::{name}" for name in "add append format insert join percentFormat str warn _set_item".split()
)
"""Functions that do not read their strings, or whose result is an `UnknownText` if a string is one."""
_READS_MEMBERS = frozenset(
    f"aten::{name}" for name in "__contains__ eq ne lt le gt ge index count remove sort sorted".split()
)
"""Functions that read the strings in lists and tuples."""


def check_texts(node_kind: str, operands: Sequence[Item]) -> None:
    """Check that a function reads no string that depends on computed numbers.

    Raises:
        CaptureError: it reads one.
    """
    if node_kind.startswith("prim::"):
        return
    reads = node_kind not in _KEEPS_TEXT and any(isinstance(operand, UnknownText) for operand in operands)
    if reads or (node_kind in _READS_MEMBERS and any(map(_has_unknown_text, operands))):
        raise CaptureError("the string depends on computed numbers, which is not supported")


def _has_unknown_text(item: Item) -> bool:
    members = item.items if isinstance(item, List) else item if isinstance(item, tuple) else None
    return isinstance(item, UnknownText) or any(map(_has_unknown_text, members or ()))


def is_constant(item: Item) -> bool:
    """Whether an item has no computed part."""
    if isinstance(item, (ir.Value, Optional, UnknownText, Uninitialized, Nested)):
        return False
    if isinstance(item, List):
        return item.items is not None and all(map(is_constant, item.items))
    if isinstance(item, Dict):
        return all(map(is_constant, item.entries.values()))
    return all(map(is_constant, item)) if isinstance(item, tuple) else True


def same(a: Item, b: Item) -> bool:
    """Whether two items are certainly identical: the same object, or equal constants of one type."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    # A NaN counts as equal to itself here: it is the same constant.
    plain = (bool, int, float, complex, str, type(None))
    return type(a) is type(b) and isinstance(a, plain) and (a == b or (a != a and b != b))

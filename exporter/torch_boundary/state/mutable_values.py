"""Copies and restores the state of single objects: containers, slots, arrays, random generators, closures.

Like `static_lookups`, nothing here runs code of the objects' classes: a subclass of `dict` may refuse, log or
convert a write, so members are read and written by the methods of `dict`, `list` and so on.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import operator
import random
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch

from ..static_lookups import bases_of, class_attributes, is_instance

Restore = Callable[[], None]
Key = TypeVar("Key")
State = TypeVar("State")
_CONTAINERS: tuple[type, ...] = (collections.OrderedDict, dict, list, set, collections.deque)
"""Python's containers. `OrderedDict` comes before `dict`, because it keeps a second record of the order."""
Members = dict[Any, Any] | list[Any] | set[Any] | collections.deque[Any]
"""The members of a container: a Python container of the same class, or a list for a subclass."""
BUILT_IN = frozenset({*_CONTAINERS, collections.defaultdict})
"""The classes of most containers. Look up only classes of the metaclass `type`, see `is_built_in`."""
_ABSENT = object()


def is_built_in(item: object) -> TypeGuard[Members]:
    """Whether an object is a Python container, and not of a subclass.

    Hashing a class runs code of its metaclass, so only classes with the metaclass `type` are looked up.
    """
    cls = type(item)
    return type(cls) is type and cls in BUILT_IN


def container_class(item: object) -> type | None:
    """Return the Python container class whose methods read and write an object's members, or None."""
    if not issubclass(type(item), _CONTAINERS):
        return None
    return next(cls for cls in _CONTAINERS if is_instance(item, cls))


def copied_members(container: object) -> Members:
    """Copy the members of a container for `refill`: a copy of a Python container, a list for a subclass."""
    if is_built_in(container):
        return container.copy()
    cls: Any = container_class(container)
    return list(cls.items(container) if issubclass(cls, dict) else cls.__iter__(container))


def members_of(container: object) -> Iterable[object]:
    """Return the objects in a container: the values of a plain dict, keys and values of a subclass."""
    if is_built_in(container):
        return container.values() if isinstance(container, dict) else container
    cls: Any = container_class(container)
    if not issubclass(cls, dict):
        return list(cls.__iter__(container))
    return [item for pair in cls.items(container) for item in pair]


def refill(container: object, members: Members) -> None:
    """Restore the members of a container, unless they are unchanged: the same objects in the same order.

    Args:
        members: the result of `copied_members`.
    """
    if _is_unchanged(container, members):
        return
    cls: Any = container_class(container)
    # Refilled and not replaced, because other objects may refer to the container.
    cls.clear(container)
    if issubclass(cls, dict):
        for key, value in members.items() if isinstance(members, dict) else members:
            # Not by `OrderedDict.update`, which calls `__setitem__` of the object's class.
            cls.__setitem__(container, key, value)
    elif cls is set:
        update: Callable[..., None] = set.update
        update(container, members)
    else:
        cls.extend(container, members)


def _is_unchanged(container: object, members: Members) -> bool:
    current = container if is_built_in(container) else copied_members(container)
    if len(current) != len(members):
        return False
    if isinstance(current, set):
        return set(map(id, current)) == set(map(id, members))
    if isinstance(current, dict) and isinstance(members, dict):
        return is_same_dict(current, members)
    if issubclass(container_class(container) or list, dict):
        # The pairs are new tuples, so their keys and values are compared.
        return all(map(operator.is_, itertools.chain(*current), itertools.chain(*members)))
    return all(map(operator.is_, current, members))


def is_same_dict(now: Mapping[Key, object], before: Mapping[Key, object]) -> bool:
    """Whether two plain dicts have the same key and value objects in the same order."""
    return (
        len(now) == len(before)
        and all(map(operator.is_, now.values(), before.values()))
        and all(map(operator.is_, now, before))
    )


def slot_values(item: object) -> list[object]:
    """Return the values in the slots of an object, without empty slots."""
    values = [_slot_value(slot, item) for slot in _slots(item)]
    return [value for value in values if value is not _ABSENT]


def has_state(item: object) -> bool:
    """Whether an object is a `random.Random`, `torch.Generator` or `threading.local`."""
    return is_instance(item, (random.Random, torch.Generator, threading.local))


def keep_value(item: Any) -> Iterator[Restore]:
    """Yield functions that restore an object: its slots, elements, generator state or closure variable."""
    item_class = type(item)
    if item_class is types.CellType:
        yield _keep_cell(item)
    elif item_class is np.ndarray:
        if item.flags.writeable:
            yield _keep_array(item)
    elif item_class is random.Random:
        yield _set_later(item.setstate, item.getstate())
    elif item_class is np.random.RandomState:
        yield _set_later(item.set_state, item.get_state())
    elif item_class is np.random.Generator:
        state = item.bit_generator.state
        yield lambda: setattr(item.bit_generator, "state", state)
    elif item_class is torch.Generator:
        yield _set_later(item.set_state, item.get_state())
    elif is_instance(item, threading.local):
        # This thread's attributes, read without the object's `__getattribute__`.
        attributes = threading.local.__getattribute__(item, "__dict__")
        members = copied_members(attributes)
        yield lambda: refill(attributes, members)
    else:
        for slot in _slots(item):
            yield _keep_slot(slot, item)


def _set_later(restore: Callable[[State], None], state: State) -> Restore:
    return lambda: restore(state)


def _keep_cell(cell: types.CellType) -> Restore:
    before = _cell_contents(cell)

    def restore() -> None:
        if _cell_contents(cell) is before:
            return
        if before is _ABSENT:
            del cell.cell_contents
        else:
            cell.cell_contents = before

    return restore


def _cell_contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _keep_array(array: np.ndarray) -> Restore:
    before = array.copy()

    def restore() -> None:
        # Comparing elements that are Python objects would run their code.
        if before.dtype.hasobject or not np.array_equal(array, before):
            array[...] = before

    return restore


def _keep_slot(slot: types.MemberDescriptorType, item: object) -> Restore:
    before = _slot_value(slot, item)

    def restore() -> None:
        if _slot_value(slot, item) is before:
            return
        if before is _ABSENT:
            slot.__delete__(item)
        else:
            slot.__set__(item, before)

    return restore


def _slot_value(slot: types.MemberDescriptorType, item: object) -> object:
    with contextlib.suppress(AttributeError):
        return slot.__get__(item)
    return _ABSENT


def _slots(item: object) -> list[types.MemberDescriptorType]:
    """Return the slots that the `__slots__` of an object's classes define."""
    return [
        member
        for cls in bases_of(type(item))
        if "__slots__" in class_attributes(cls)
        for member in class_attributes(cls).values()
        if type(member) is types.MemberDescriptorType
    ]

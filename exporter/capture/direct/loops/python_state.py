"""What the Python code around a loop may change besides tensors."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_MOST_MEMBERS = 64
"""Members of longer lists are not looked at."""
_PLAIN = (bool, int, float, str, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)
_WITHOUT_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType)


class ListState:
    """A list, and its members at one time."""

    def __init__(self, items: Any):
        self.items = items
        self.length = len(items)
        self._members = tuple(items)

    def new_position(self, earlier: ListState) -> int | None:
        """Where the list has one member more than before: 0 for the front, -1; None if it has not."""
        if self.items is not earlier.items or self.length != earlier.length + 1:
            return None
        # `path.insert(0, step)` collects the steps of a search that runs backwards.
        is_in_front = earlier.length and all(map(operator.is_, self._members[1:], earlier._members))
        return 0 if is_in_front else -1

    def __repr__(self) -> str:
        return f"{self.length} members"


def python_state(frame: types.FrameType) -> dict[str, object]:
    """What a loop may change besides tensors: Python numbers, texts, and lengths of containers, by path."""
    state: dict[str, object] = {}
    for path, value in _members(frame):
        if isinstance(value, (bool, int, float, str, torch.SymInt, torch.SymFloat)):
            state[path] = value
        elif isinstance(value, (list, set, frozenset, collections.deque)):
            state[path] = ListState(value)
        elif isinstance(value, dict):
            state[path] = f"{len(value)} members"
    return state


def lists_with_result(
    before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[str, list[torch.Tensor], int]]:
    """The lists, by path, to which an iteration added one tensor at an end, and its position, 0 or -1.

    Args:
        before, after: the states before and after the iteration.
    """
    for path, state in after.items():
        earlier = before.get(path)
        if not isinstance(state, ListState) or not isinstance(earlier, ListState):
            continue
        items, position = state.items, state.new_position(earlier)
        if position is None or isinstance(items, (set, frozenset)):
            continue
        if isinstance(items[position], torch.Tensor):
            yield path, items, position


def tensor_members(frame: types.FrameType) -> dict[str, torch.Tensor]:
    """The tensors that the variables of a frame reach, by path."""
    return {path: value for path, value in _members(frame) if isinstance(value, torch.Tensor)}


def _members(frame: types.FrameType) -> Iterator[tuple[str, object]]:
    """What the variables of a frame reach, by path; containers and other objects once."""
    visited: set[int] = set()
    pending: list[tuple[str, object]] = list(frame.f_locals.items())
    while pending:
        path, value = pending.pop()
        if isinstance(value, _PLAIN):
            yield path, value
            continue
        if id(value) in visited or isinstance(value, _WITHOUT_STATE):
            continue
        visited.add(id(value))
        yield path, value
        if isinstance(value, (list, tuple)) and len(value) <= _MOST_MEMBERS:
            pending += [(f"{path}[{index}]", member) for index, member in enumerate(value)]
        elif isinstance(value, dict):
            pending += [(f"{path}[{key!r}]", member) for key, member in value.items()]
        members = getattr(value, "__dict__", None)
        if isinstance(members, dict):
            prefix = "" if path.startswith("self._modules") else "."
            pending += [(f"{path}{prefix}{name}", member) for name, member in members.items()]

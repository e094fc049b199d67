"""Python's `range`, `enumerate`, `len`, `zip`, `unbind` and so on over dynamic sizes, as models use them."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, overload

import torch

from ....torch_boundary.fake_tensors import FakeTensor
from ...sizes.trials.recorded_answers import current_line
from ..checks import is_iterated
from ..refusals import LoopRefused
from .iterations import Loops
from .recorded_loops import Number


class DynamicRange:
    """A `range` whose length depends on dynamic sizes."""

    def __init__(self, loops: Loops, start: Number, stop: Number, step: int):
        self._loops = loops
        self._start = start
        self._stop = stop
        self._step = step

    @property
    def repeated(self) -> Number:
        """The number of members; a range whose stop lies before its start has none."""
        span = self._stop - self._start if self._step > 0 else self._start - self._stop
        return (span + abs(self._step) - 1) // abs(self._step) if span > 0 else 0

    @property
    def length(self) -> Number:
        """The number of members that `len` returns."""
        return self.repeated

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __iter__(self) -> Iterator[Number]:
        return self._loops.iterate(self._start, self._stop, self._step)

    def count_members(self, first: Number) -> Iterator[tuple[Number, Number]]:
        """The indices with their numbers, which begin with a given one."""
        start, step = self._start, self._step
        return (((index - start) // step + first, index) for index in self)

    def __reversed__(self) -> DynamicRange:
        if self._step != 1:
            raise _refusal("reversed() of a range over a dynamic size takes a step of 1")
        return DynamicRange(self._loops, self._stop - 1, self._start - 1, -1)

    def total(self) -> Number:
        """The sum of the members."""
        count = self.repeated
        return self._start * count + self._step * (count * (count - 1) // 2)

    def as_list(self) -> DynamicList:
        """`list(range(n))`."""
        return DynamicList(self._loops, self._start, self._stop, self._step)

    def make_tensor(self) -> torch.Tensor:
        """The tensor of the members, as `torch.tensor` makes it of a list."""
        arange: Callable[..., torch.Tensor] = torch.arange
        return arange(self._start, self._start + self.repeated * self._step, self._step)


def _refusal(use: str) -> LoopRefused:
    """The error for a use of a list that has no form for every size, with the line of the user's code."""
    return LoopRefused(
        f"{use} at {current_line()}\n"
        "  - use torch.arange, or make the dimension static (leave it out of dynamic_shapes)"
    )


class DynamicList(DynamicRange):
    """A list of numbers: a few, and those of a range over a dynamic size."""

    first_members: tuple[Number, ...] = ()
    """The numbers that come first, before those of the range."""

    @property
    def length(self) -> Number:
        """The number of members."""
        return len(self.first_members) + self.repeated

    def __iter__(self) -> Iterator[Number]:
        if self.first_members:
            raise _refusal("a loop over a list of numbers before those of a range over a dynamic size")
        return super().__iter__()

    def __reversed__(self) -> DynamicList:
        return self[::-1]

    def __eq__(self, other: object) -> bool:
        raise _refusal("a comparison of a list of a dynamic length")

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'list'")

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(list, name):
            raise _refusal(f"the method {name} of a list of a dynamic length")
        raise AttributeError(f"'list' object has no attribute '{name}'")

    def __radd__(self, numbers: list[Number]) -> DynamicList:
        joined = self.as_list()
        joined.first_members = (*numbers, *self.first_members)
        return joined

    def total(self) -> Number:
        """The sum of the members."""
        return sum(self.first_members, super().total())

    def as_list(self) -> DynamicList:
        """A copy."""
        copied = super().as_list()
        copied.first_members = self.first_members
        return copied

    @overload
    def __getitem__(self, key: int) -> Number: ...

    @overload
    def __getitem__(self, key: slice) -> DynamicList: ...

    def __getitem__(self, key: int | slice) -> Number | DynamicList:
        if isinstance(key, slice):
            return self._slice(key)
        index = key + self.length if key < 0 else key
        if index < 0 or index >= self.length:
            raise IndexError("list index out of range")
        count = len(self.first_members)
        return self.first_members[int(index)] if index < count else self._start + (index - count) * self._step

    def _slice(self, key: slice) -> DynamicList:
        """Some of the members, as Python's lists slice; the comparisons become conditions on the size."""
        step, count = 1 if key.step is None else key.step, len(self.first_members)
        if step < 0:
            if key.start is not None or key.stop is not None or count:
                raise _refusal("a slice in reverse of a part of a list of a dynamic length")
            length = self.length
            last = self._start + (length - 1) * self._step
            stride = (length - step - 1) // -step * self._step * step
            return DynamicList(self._loops, last, last + stride, self._step * step)
        start = 0 if key.start is None else self._position(key.start)
        stop = self.length if key.stop is None else self._position(key.stop)
        if stop < count:
            raise _refusal("a slice that ends before the members of a range over a dynamic size")
        # The slice continues in the range at the first of its positions behind the first members.
        skipped = (start - count if start >= count else (start - count) % step) * self._step
        end = self._start + (stop - count) * self._step
        result = DynamicList(self._loops, self._start + skipped, end, self._step * step)
        result.first_members = self.first_members[int(start) :: step] if start < count else ()
        return result

    def _position(self, position: Number) -> Number:
        """A start or stop of a slice, counted from the beginning and within the list."""
        length = self.length
        position = position + length if position < 0 else position
        return 0 if position < 0 else length if position > length else position

    def make_tensor(self) -> torch.Tensor:
        """The tensor of the members."""
        tensor = super().make_tensor()
        return torch.cat([torch.tensor(self.first_members), tensor]) if self.first_members else tensor


class RepeatedNumber:
    """`[number] * n` of a number of rows that depends on data, which only becomes a tensor."""

    def __init__(self, number: int | float, count: torch.SymInt):
        self._number = number
        self.length = count

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __iter__(self) -> NoReturn:
        raise _refusal("a loop over a list of one number for each row")

    def __getitem__(self, key: object) -> NoReturn:
        raise _refusal("a member of a list of one number for each row")

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(list, name):
            raise _refusal(f"the method {name} of a list of one number for each row")
        raise AttributeError(f"'list' object has no attribute '{name}'")

    def make_tensor(self) -> torch.Tensor:
        """The tensor of the members."""
        return torch.full((self.length,), self._number)


def repeat_number(number: int | float, count: torch.SymInt) -> RepeatedNumber | None:
    """`[number] * count`; None if the count does not depend on data."""
    return None if count.node.has_hint() else RepeatedNumber(number, count)


class DynamicSequence:
    """The slices of a tensor along an axis of dynamic size, as `unbind` gives them."""

    def __init__(self, loops: Loops, tensor: torch.Tensor, axis: int):
        self.tensor = tensor
        self._axis = axis
        self.indices = DynamicRange(loops, 0, tensor.shape[axis], 1)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[index] for index in self.indices)

    def __reversed__(self) -> Iterator[torch.Tensor]:
        return (self[index] for index in reversed(self.indices))

    def __getitem__(self, index: Number) -> torch.Tensor:
        return self.tensor.select(self._axis, index)

    def __len__(self) -> object:
        return self.tensor.shape[self._axis]


class DynamicParts(DynamicSequence):
    """The parts of a tensor along an axis of dynamic size, as `split` gives them; the last may be shorter."""

    def __init__(self, loops: Loops, tensor: torch.Tensor, axis: int, length: int):
        super().__init__(loops, tensor, axis)
        self._length = length
        self.indices = DynamicRange(loops, 0, tensor.shape[axis], length)

    def __getitem__(self, index: Number) -> torch.Tensor:
        part: torch.Tensor = torch.ops.aten.slice.Tensor(self.tensor, self._axis, index, index + self._length)
        return part

    def __len__(self) -> object:
        return self.indices.length


def slices_of(tensor: torch.Tensor, dim: int = 0) -> DynamicSequence | None:
    """The slices of a fake tensor of a recording along an axis of dynamic size; None for other tensors."""
    loops = _loops_over(tensor, dim)
    return None if loops is None else DynamicSequence(loops, tensor, dim)


def sequence_of(func: object, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> DynamicSequence | None:
    """What `unbind` or `split` gives of such a tensor, for code that runs over it; else None."""
    if func not in (torch.split, torch.Tensor.split):
        return slices_of(tensor, *args, **kwargs)
    # torch passes the length by position, also where the caller names it.
    length, dim = [*args, *kwargs.values(), 0][:2]
    loops = _loops_over(tensor, dim)
    if loops is None or type(length) is not int or length <= 0 or not is_iterated("split"):
        return None
    return DynamicParts(loops, tensor, dim, length)


def _loops_over(tensor: torch.Tensor, dim: int) -> Loops | None:
    size = tensor.shape[dim] if tensor.dim() else 0
    return getattr(size.node.shape_env, "loops", None) if isinstance(size, torch.SymInt) else None


def _rows(items: Any) -> Any:
    """The rows of a tensor whose first size is dynamic; other objects unchanged."""
    rows = slices_of(items) if isinstance(items, FakeTensor) else None
    return items if rows is None else rows


def _members(items: Any) -> Any:
    """The tensors of a list with all results of a loop, as slices of their stack; other objects unchanged.

    The list itself has only those of the iterations that ran.
    """
    if type(items) is not list or not items or not isinstance(items[0], FakeTensor):
        return items
    loops = getattr(items[0].fake_mode.shape_env, "loops", None)
    if loops is None or not loops.has_results(items):
        return items
    return DynamicSequence(loops, torch.stack(items), 0)


def reverse_members(items: Any) -> Iterator[object]:
    """`reversed`, also of the results of a loop."""
    members: Iterator[object] = builtins.reversed(_members(items))
    return members


class DynamicZip:
    """A `zip` of iterables, among them some of dynamic length."""

    def __init__(self, members: Sequence[Any], strict: bool):
        self.members = members
        self._strict = strict

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return builtins.zip(*self.members, strict=self._strict)

    def count_members(self, first: Number) -> Iterator[tuple[Number, tuple[object, ...]]]:
        """The tuples with their numbers, which begin with a given one."""
        lengths = (getattr(member, "indices", member) for member in self.members)
        numbers = next(member for member in lengths if isinstance(member, DynamicRange))
        # The numbers are those of a range that runs along.
        counted = builtins.zip(numbers.count_members(first), *self.members, strict=self._strict)
        return ((number, tuple(members)) for (number, _), *members in counted)


def zip_members(*iterables: Any, strict: bool = False) -> Iterable[tuple[object, ...]]:
    """`zip`, also of the results of loops."""
    members = [_members(_rows(items)) for items in iterables]
    if any(isinstance(member, (DynamicRange, DynamicSequence)) for member in members):
        return DynamicZip(members, strict)
    return builtins.zip(*members, strict=strict)


def sum_members(items: Any, start: Any = 0) -> object:
    """`sum`, also of the results of a loop, whose order of addition is that of torch.sum."""
    members = _members(items)
    if isinstance(members, DynamicRange):
        return members.total() + start
    if not isinstance(members, DynamicSequence):
        return builtins.sum(items, start)
    return members.tensor.sum(0, dtype=torch.result_type(members.tensor, start)) + start


def count_members(items: Any, start: Number = 0) -> Iterator[tuple[Number, object]]:
    """`enumerate`, with symbolic numbers for a loop over a dynamic size."""
    items = _members(_rows(items))
    if isinstance(items, DynamicSequence):
        return ((number, items[index]) for number, index in items.indices.count_members(start))
    if isinstance(items, (DynamicRange, DynamicZip)):
        return items.count_members(start)
    return builtins.enumerate(items, int(start))


def dynamic_length(item: Any) -> object:
    """The length of an object; symbolic for a list of the results of a loop, and where `__len__` says so."""
    if type(item) is DynamicSequence:
        return item.__len__()
    if isinstance(item, (DynamicRange, RepeatedNumber)):
        return item.length
    if type(item) is list and item and isinstance(item[0], FakeTensor):
        loops = getattr(item[0].fake_mode.shape_env, "loops", None)
        if loops is not None and loops.all:
            return loops.length(item)
    method = inspect.getattr_static(type(item), "__len__", None)
    if isinstance(method, types.FunctionType):
        # `len` would turn a symbolic size that `__len__` returns into a plain number.
        length: object = method(item)
        if isinstance(length, torch.SymInt) or (type(length) is int and length >= 0):
            return length
    return len(item)

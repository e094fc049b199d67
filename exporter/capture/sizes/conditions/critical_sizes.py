"""Finds the sizes at which a condition on sizes changes from true to false, at any distance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from .guards import Guard, Point

_Item = TypeVar("_Item")
_SMALLEST = 2
"""Smaller sizes are tried for every dimension, whatever the conditions are."""
_SMALL = 16
"""Sizes up to this one are all tried."""
_MOST_CHANGES = 32
"""How many changes of one quantity are searched for."""
_CHANGES: Sequence[Callable[[int], int]] = (lambda size: 17 * size + 5, lambda size: 2)
"""Other sizes for dimensions that a condition does not name, computed from the example's."""
_MOST_OF_TWO = 6
"""How many sizes of one dimension are combined with those of another."""


def critical_points(guard: Guard, base: Point, largest: int) -> Iterator[Point]:
    """Points at which a condition does not hold, near its changes: of one dimension, then of two.

    A condition may change far from the example: `height / width > 1.5` does at 3 : 2.

    Args:
        guard: the condition.
        base: the sizes of the example, of all dimensions.
        largest: the largest size.
    """
    names = sorted(guard.names)
    sizes = {name: critical_sizes(guard, name, base, largest) for name in names}
    other_names = base.keys() - guard.names
    for name in names:
        points = [point for size in sizes[name] if not guard.holds(point := {**base, name: size})]
        yield from points
        # The result there may depend on the other dimensions, too.
        for change in _CHANGES if other_names else ():
            yield from (
                {**point, **{other_name: change(base[other_name]) for other_name in other_names}}
                for point in _some_of(points)
            )
    for first, second in itertools.permutations(names, 2):
        for size in _some_of(sizes[first]):
            point = {**base, first: size}
            points = [
                {**point, second: second_size}
                for second_size in critical_sizes(guard, second, point, largest)
            ]
            yield from _some_of([point for point in points if not guard.holds(point)])


def critical_sizes(guard: Guard, name: str, point: Point, largest: int) -> list[int]:
    """The sizes next to those at which a condition changes, the nearest to a point first.

    Bisects the intervals of a coarse grid where the truth of the condition changes, or the sign of the
    difference of both sides of a comparison in it: an equality may hold only where that sign changes.

    Args:
        guard: the condition.
        name: the dimension.
        point: the sizes of all dimensions; those of the others stay.
        largest: the largest size.
    """
    quantities: list[Callable[[Point], int | None]] = [lambda point: int(guard.holds(point)), *guard.signs]
    grid = _grid(point[name], point.values(), largest)
    sizes = set(point.values())
    for quantity in quantities:

        def value_at(size: int, quantity: Callable[[Point], int | None] = quantity) -> int | None:
            return quantity({**point, name: size})

        sizes.update(_changes(value_at, grid))
    beside = {size + step for size in sizes for step in (-1, 0, 1) if _SMALLEST <= size + step <= largest}
    return sorted(beside, key=lambda size: (abs(size - point[name]), size))


def _grid(size: int, other_sizes: Iterable[int], largest: int) -> list[int]:
    """Sizes at which to look: all small ones, powers of two, and those of other dimensions."""
    powers = (part << exponent for part in (2, 3) for exponent in range(largest.bit_length()))
    sizes = {*range(_SMALLEST, _SMALL + 1), *powers, *other_sizes, size, largest}
    return sorted(size for size in sizes if _SMALLEST <= size <= largest)


def _changes(quantity: Callable[[int], int | None], grid: list[int]) -> list[int]:
    """The first size with another value in each interval of the grid at whose ends a quantity differs."""
    values = [quantity(size) for size in grid]
    changes: list[int] = []
    for (low, value), (high, next_value) in itertools.pairwise(zip(grid, values, strict=True)):
        if value == next_value:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if quantity(middle) == value else (low, middle)
        changes.append(high)
        if len(changes) == _MOST_CHANGES:
            break
    return changes


def _some_of(items: Sequence[_Item]) -> Sequence[_Item]:
    """At most a few items of a sequence, evenly spread, the first one and the last one among them."""
    if len(items) <= _MOST_OF_TWO:
        return items
    return [items[i * (len(items) - 1) // (_MOST_OF_TWO - 1)] for i in range(_MOST_OF_TWO)]


def alternate(first: Iterable[Point], second: Iterable[Point]) -> Iterator[Point]:
    """The items of two iterables in turn."""
    for pair in itertools.zip_longest(first, second):
        yield from (point for point in pair if point is not None)


def find_boundary(allowed: Callable[[int], bool], base: int, end: int) -> int | None:
    """The size nearest to the base, towards an end, that is not allowed; None if all tried sizes are."""
    sign = 1 if end > base else -1
    step, last = 1, base
    while last != end:
        size = base + sign * step
        size = min(size, end) if sign > 0 else max(size, end)
        if not allowed(size):
            while abs(size - last) > 1:
                middle = (size + last) // 2
                last, size = (middle, size) if allowed(middle) else (last, middle)
            return size
        last, step = size, 2 * step
    return None


def find_first_failure(
    passes: Callable[[int], bool], guards: Sequence[Guard], name: str, start: int, end: int
) -> int | None:
    """The size nearest to the start, towards an end, that fails a trial; None if all tried sizes pass.

    A model usually begins to fail where a quantity that a guard compares takes another value, such as the
    size of a result. A trial runs the model, and the quantities take no run.

    Args:
        passes: the trial.
        guards: conditions on one dimension, `name`.
        start: a size that passes.
    """
    step = 1 if end > start else -1
    changes = {end}
    for difference in itertools.chain.from_iterable(guard.differences for guard in guards):

        def is_same(size: int, difference: Callable[[Point], float | None] = difference) -> bool:
            return difference({name: size}) == difference({name: start})

        change = find_boundary(is_same, start, end)
        changes.update(() if change is None else (change,))
    sizes = [start, *sorted(changes - {start}, reverse=step < 0)]
    position = find_boundary(lambda position: passes(sizes[position]), 0, len(sizes) - 1)
    if position is None:
        return None
    size, nearest_passing = sizes[position], sizes[position - 1]
    if size - step == nearest_passing or passes(size - step):
        return size
    return find_boundary(passes, nearest_passing, size - step)

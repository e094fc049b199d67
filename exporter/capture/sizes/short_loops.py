"""Chooses sizes at which a loop over a dynamic size is short enough to be run in a trial."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from .conditions.guards import Guard, Point

_LARGEST_SIZE = 8
_MOST_DIMENSIONS = 2
"""How many dimensions are made smaller together."""


def sizes_of_short_loops(
    point: Point, guards: Sequence[Guard], has_long_loop: Callable[[Point], bool]
) -> Point | None:
    """The sizes of a point, some of them smaller, at which no loop is long; None if there are none.

    A loop runs the same operators in each iteration, so that fewer iterations show what many do. Conditions
    that the point meets, and only those, must be met at the smaller sizes, too.

    Args:
        point: the sizes of dimensions by name.
        guards: the conditions.
        has_long_loop: whether a loop is too long for a trial at the sizes that it is given.
    """
    if not has_long_loop(point):
        return point
    answers = [guard.holds(point) for guard in guards]
    large = [name for name, size in point.items() if size > 2]
    for count in range(1, _MOST_DIMENSIONS + 1):
        for names in itertools.combinations(large, count):
            sizes_of_names = [range(min(point[name] - 1, _LARGEST_SIZE), 1, -1) for name in names]
            for sizes in itertools.product(*sizes_of_names):
                smaller = {**point, **dict(zip(names, sizes, strict=True))}
                if not has_long_loop(smaller) and answers == [guard.holds(smaller) for guard in guards]:
                    return smaller
    return None

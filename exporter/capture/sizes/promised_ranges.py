"""Refuses captures that are not valid for every size of a dynamic dimension."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ....registration import NarrowedError
from ...captured_graph.dimensions import (
    Dimension,
    SizeRestriction,
    evaluate,
    in_words,
    is_about_remainder,
    mentions,
)
from .conditions.guards import Point, spread
from .size_limits import SizeLimits
from .size_regions import MOST_REGIONS

_SIZES_TRIED = 1 << 12
_LARGE = (1 << 20) + 1


def refuse_narrowed(
    limits: SizeLimits,
    promised: Mapping[str, Dimension],
    inferred: Collection[str],
    narrow: Collection[str],
) -> None:
    """Refuse a capture that is not valid for sizes that the caller wants to use.

    Sizes 0 and 1 do not count, as in torch.export, where a `Dim` begins at 2. In the range of a `Dim`, every
    restriction counts. For other dimensions, those count that the model does not have itself, unless they
    demand multiples of a number.

    Args:
        limits: the sizes for which the captured graph is valid.
        promised: the range of each `Dim` by name.
        inferred: the dimensions whose range torch may choose, by name.
        narrow: the dimensions that the caller allows to be narrowed, by name.

    Raises:
        NarrowedError: it lists all such restrictions.
    """
    example = limits.captured_sizes
    broken: dict[SizeRestriction, list[Dimension]] = {}
    for restriction in limits.restrictions:
        names = [name for name in {**promised, **example} if mentions(restriction.condition, name)]
        dimensions = [promised.get(name, Dimension(name)) for name in names]
        is_promise = set(names) <= promised.keys()
        is_counted = is_promise or (
            restriction in limits.unlike_model
            and not set(names) <= set(inferred)
            and not _demands_multiple(restriction.condition, names)
        )
        is_narrowed = any(name in narrow for name in names)
        if is_counted and not is_narrowed and _excludes_any(restriction.condition, dimensions, example):
            broken[restriction] = dimensions
    if broken:
        raise NarrowedError(
            _message(broken, example if limits.has_more_sides else {}),
            [restriction.condition for restriction in broken],
        )


def _demands_multiple(condition: str, names: Sequence[str]) -> bool:
    """Whether a condition fixes the remainder of a size: `n % 4 == 0`, also as `n == 4 * (n // 4)`."""
    if is_about_remainder(condition, names):
        return True
    if len(names) != 1:
        return False
    sizes = range(2, _SIZES_TRIED)
    allowed = (size for size in sizes if evaluate(condition, {names[0]: size}))
    first, second = next(allowed, 0), next(allowed, 0)
    step = second - first
    # Most conditions are bounds, which allow two sizes in a row; the others need not be tried then.
    if step < 2:
        return False
    further_sizes = list(allowed)
    expected = [size for size in sizes if size % step == first % step]
    return len(further_sizes) > 0 and [first, second, *further_sizes] == expected


def _excludes_any(condition: str, dimensions: Sequence[Dimension], example: Point) -> bool:
    """Whether a condition excludes sizes of at least 2 in the ranges of its dimensions."""
    if len(dimensions) == 1:
        [dimension] = dimensions
        points: Iterable[Point] = ({dimension.name: size} for size in _sizes(dimension))
    else:
        base = {dimension.name: example[dimension.name] for dimension in dimensions}
        points = (
            point
            for point in spread(base, frozenset(base))
            if all(
                max(2, dimension.minimum) <= point[dimension.name] <= (dimension.maximum or math.inf)
                for dimension in dimensions
            )
        )
    return any(evaluate(condition, point) is False for point in points)


def _sizes(dimension: Dimension) -> Iterator[int]:
    start = max(2, dimension.minimum)
    end = start + _SIZES_TRIED if dimension.maximum is None else dimension.maximum + 1
    yield from range(start, min(end, start + _SIZES_TRIED))
    yield _LARGE if dimension.maximum is None else dimension.maximum


def _message(broken: Mapping[SizeRestriction, Sequence[Dimension]], example: Point) -> str:
    """The restrictions, and what the caller can do.

    Args:
        example: the captured sizes, if branches on sizes have more sides than the export keeps.
    """
    by_name = {dimension.name: dimension for dimensions in broken.values() for dimension in dimensions}
    names = " and ".join(f"'{name}'" for name in by_name)
    lines = [
        f"the model does not support every size of the dynamic dimension{'s' if len(by_name) > 1 else ''} "
        f"{names}. The export is valid for {' and '.join(in_words(broken))}"
    ]
    for dimension in by_name.values():
        own_restrictions = [restriction for restriction in broken if broken[restriction] == [dimension]]
        remaining_range = _remaining_range(dimension, own_restrictions)
        if remaining_range:
            lines.append(f"declare the range that it supports: {remaining_range}")
    if example:
        name = next(iter(by_name))
        lines.append(
            f'or declare another range, such as Dim("{name}", max={2 * example[name]}), in which branches '
            f"on sizes have fewer sides: up to {MOST_REGIONS} become an If"
        )
    name_list = ", ".join(f'"{name}"' for name in by_name)
    lines += [
        f"or pass narrow=True (--narrow) or narrow=[{name_list}] to opsetta: the program then refuses sizes "
        "for which it is not valid, and so does the file with guard=True (--guard)",
        "or change the model to support every size: use x.shape[0] or -1 instead of a number, and "
        "torch.where instead of a branch on a size",
    ]
    lines[1] = lines[1].removeprefix("or ")
    return "\n  - ".join(lines)


def _remaining_range(dimension: Dimension, restrictions: Sequence[SizeRestriction]) -> str:
    """The dimension without the excluded sizes, as code; empty if it has no such form."""
    lower, upper = dimension.minimum, dimension.maximum
    for restriction in restrictions:
        _, _, bound = restriction.condition.partition(f"{dimension.name} >= ")
        _, _, other_bound = restriction.condition.partition(f"{dimension.name} <= ")
        if bound.isdigit():
            lower = max(lower, int(bound))
        elif other_bound.isdigit():
            upper = int(other_bound) if upper is None else min(upper, int(other_bound))
        else:
            return ""
    if not restrictions:
        return ""
    limits = ([f"min={lower}"] if lower else []) + ([] if upper is None else [f"max={upper}"])
    text = (f"{lower} <= " if lower else "") + dimension.name + ("" if upper is None else f" <= {upper}")
    return f'Dim("{dimension.name}", {", ".join(limits)}), or the name "{text}"'

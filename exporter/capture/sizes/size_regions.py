"""Finds captures of a model for the sizes at which the capture of the example is not valid.

`if length % 2: x = x[:, :-1]` computes something else for odd lengths. One capture for even lengths and one
for odd lengths, joined by an If on the length, are valid for all.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ...captured_graph.dimensions import SizeRestriction, evaluate, mentions
from ..fx_import.captured_program import CapturedProgram
from .conditions.critical_sizes import find_boundary
from .conditions.guards import Point
from .size_limits import SizeLimits

MOST_REGIONS = 6
_MOST_NODES = 2_000
"""The number of nodes that more than two regions together may have."""
_MOST_ATTEMPTS = 2
"""How many points outside of the regions are tried before the remaining sizes are given up."""
_FURTHEST = 1 << 20
_NEAR_SIZES = 34
_MOST_ATOMS = 10
_NEGATED = {ast.NotEq: ast.Eq, ast.Gt: ast.LtE, ast.GtE: ast.Lt}


@dataclasses.dataclass(frozen=True)
class SizeRegion:
    """A capture, and the sizes for which it is valid.

    Attributes:
        program: the capture.
        limits: its limits.
        fixed: the dimensions that it has at one size only.
    """

    program: CapturedProgram
    limits: SizeLimits
    fixed: Point = dataclasses.field(default_factory=dict)

    @property
    def conditions(self) -> list[SizeRestriction]:
        """The conditions that the model itself does not have."""
        sizes = [
            SizeRestriction(f"{name} == {size}", "the model takes another path")
            for name, size in self.fixed.items()
        ]
        return [*sizes, *self.limits.unlike_model]

    @property
    def of_model(self) -> list[SizeRestriction]:
        """The other conditions."""
        return [entry for entry in self.limits.restrictions if entry not in self.limits.unlike_model]

    def includes(self, point: Point) -> bool:
        """Whether the capture computes at these sizes what the model computes, errors included."""
        return all(evaluate(entry.condition, point) for entry in self.conditions)


CaptureAt = Callable[[Point, Collection[str]], SizeRegion | None]
"""Captures the model at other sizes; the named dimensions are static."""


def find_regions(
    first: SizeRegion,
    example: Point,
    ranges: Mapping[str, tuple[int | None, int | None]],
    capture_at: CaptureAt,
) -> list[SizeRegion]:
    """Captures that are valid for more sizes than the first one alone; the first one is among them.

    Args:
        first: the capture of the example.
        example: the sizes of the example, which are 0 and 1 also where the capture enlarged them.
        ranges: the caller's smallest and largest size of each dimension, or None.
        capture_at: captures the model at other sizes.
    """
    regions, failed = [first], 0
    tried: set[tuple[int, ...]] = set()
    while failed < _MOST_ATTEMPTS:
        point = _point_outside(regions, example, ranges, tried)
        if point is None:
            return regions
        if len(regions) == MOST_REGIONS:
            regions[0].limits.has_more_sides = True
            break
        tried.add(tuple(point.values()))
        captured_sizes = regions[0].limits.captured_sizes
        changed = {name for name in _names_in(regions) if point[name] != captured_sizes[name]}
        region = None if min(point.values()) < 2 else capture_at(point, ())
        if region is None or not region.includes(point):
            region = capture_at(point, {*changed, *(name for name, size in point.items() if size < 2)})
        if region is None or not region.includes(point):
            failed += 1
        elif not region.conditions:
            return [region]
        else:
            # A longer example may show that a branch of the first one is a special case.
            remaining = [*(part for part in regions if not _is_part(part, region)), region]
            nodes = sum(len(part.program.graph.nodes) for part in remaining)
            if len(remaining) > 2 and nodes > _MOST_NODES:
                regions[0].limits.has_more_sides = True
                break
            regions = remaining
    # A part of the sizes is no reason to write an If.
    origin = _own_point(regions, example)
    return (
        regions[:1]
        if regions[0].includes(origin) or not any(region.includes(origin) for region in regions)
        else regions
    )


def _is_part(part: SizeRegion, region: SizeRegion) -> bool:
    """Whether a region certainly includes all sizes of another one, which has further conditions."""
    conditions = {entry.condition for entry in part.conditions}
    of_model = {entry.condition for entry in part.of_model}
    return {entry.condition for entry in region.conditions} <= conditions and (
        {entry.condition for entry in region.of_model} <= of_model
    )


def _own_point(regions: Sequence[SizeRegion], example: Point) -> dict[str, int]:
    """The captured sizes, with those of the example for the dimensions of the conditions.

    Other sizes of 0 and 1 are not worth another capture: most models are valid there.
    """
    return {**regions[0].limits.captured_sizes, **{name: example[name] for name in _names_in(regions)}}


def _names_in(regions: Sequence[SizeRegion]) -> list[str]:
    """The dimensions of the first region's conditions."""
    sizes = regions[0].limits.captured_sizes
    texts = [entry.condition for region in regions for entry in region.conditions]
    return [name for name in sizes if any(mentions(text, name) for text in texts)]


def _point_outside(
    regions: Sequence[SizeRegion],
    example: Point,
    ranges: Mapping[str, tuple[int | None, int | None]],
    tried: Collection[tuple[int, ...]],
) -> Point | None:
    """Sizes that no region includes, and that the model may support; None without them."""
    origin = _own_point(regions, example)
    if not any(region.includes(origin) for region in regions) and tuple(origin.values()) not in tried:
        return origin
    for point in _points(regions, ranges):
        is_outside = not any(region.includes(point) for region in regions)
        if is_outside and tuple(point.values()) not in tried:
            conditions = [entry.condition for region in regions for entry in region.of_model]
            if all(evaluate(condition, point) is not False for condition in conditions):
                return point
    return None


def _points(
    regions: Sequence[SizeRegion], ranges: Mapping[str, tuple[int | None, int | None]]
) -> Iterator[dict[str, int]]:
    """Sizes of at least 2 in the caller's ranges: those near the captured ones first."""
    names = _names_in(regions)
    base = dict(regions[0].limits.captured_sizes)

    def is_inside(name: str, inner: Sequence[SizeRegion], size: int) -> bool:
        return any(region.includes({**base, name: size}) for region in inner)

    choices: dict[str, list[int]] = {}
    beyond: dict[str, list[int]] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for name in names:
        lower, upper = ranges.get(name, (None, None))
        # torch's Dim has infinity as its largest size.
        low, high = max(2, int(lower or 0)), _FURTHEST if upper is None else int(min(upper, _FURTHEST))
        sizes = {*range(2, _NEAR_SIZES), *(base[name] + step for step in range(-8, 9))}
        beyond[name], bounds[name] = [], (low, high)
        # Where one region ends, others may begin that do not include all sizes of other dimensions.
        for inner, end in itertools.product((regions, regions[:1]), (low, high)):
            if end != base[name]:
                boundary = find_boundary(functools.partial(is_inside, name, inner), base[name], end)
                sizes |= set() if boundary is None else {boundary - 1, boundary, boundary + 1}
                beyond[name] += [] if boundary is None else [boundary - 1, boundary, boundary + 1]
        # Most code pads odd sizes, and then computes what holds for even ones, too.
        choices[name] = sorted(
            (size for size in sizes if low <= size <= high),
            key=lambda size: (abs(size - base[name]) // 4, size % 2 == 0, abs(size - base[name])),
        )
    for name in names:
        yield from ({**base, name: size} for size in choices[name])
    # `h != 20 or w != 10` excludes one pair of sizes, which may be far from the captured ones.
    for entry in (entry for region in regions for entry in region.conditions):
        compared = _compared_sizes(entry.condition)
        if all(
            name in bounds and bounds[name][0] <= size <= bounds[name][1] for name, size in compared.items()
        ):
            yield {**base, **compared}
    for first, second in itertools.combinations(names, 2):
        pairs = itertools.product(
            *({*choices[name][:12], *beyond[name]} & {*choices[name]} for name in (first, second))
        )
        for size, second_size in sorted(pairs, key=sum):
            yield {**base, first: size, second: second_size}
    yield from ({**base, **dict.fromkeys(names, size)} for size in range(2, _NEAR_SIZES))


def _compared_sizes(condition: str) -> dict[str, int]:
    """The numbers with which a condition compares dimensions, by the name of the dimension."""
    try:
        tree = ast.parse(condition, mode="eval")
    except SyntaxError:
        return {}
    return {
        node.left.id: node.comparators[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and isinstance(node.comparators[0], ast.Constant)
        and type(node.comparators[0].value) is int
    }


def joined_limits(regions: Sequence[SizeRegion]) -> SizeLimits:
    """The limits of all regions together; the first region that includes the sizes of a call runs."""
    first = regions[0].limits
    limits = SizeLimits(captured_sizes=first.captured_sizes, has_more_sides=first.has_more_sides)
    inside = [
        " and ".join(_in_brackets(entry.condition) for entry in region.conditions) for region in regions
    ]
    by_condition: dict[str, list[int]] = {}
    for position, region in enumerate(regions):
        for entry in region.of_model:
            by_condition.setdefault(entry.condition, []).append(position)
            if entry.condition not in {restriction.condition for restriction in limits.restrictions}:
                limits.restrictions.append(entry)
    for index, entry in enumerate(limits.restrictions):
        positions = by_condition[entry.condition]
        if len(positions) < len(regions):
            # The model itself has the condition, but on these sides only.
            other_sides = [f"({inside[i]})" for i in range(len(regions)) if i not in positions]
            limits.restrictions[index] = dataclasses.replace(
                entry, condition=" or ".join([*other_sides, f"({entry.condition})"])
            )
    if not _include_all(regions):
        sides: list[str] = []
        excluded: set[tuple[str, bool]] = set()
        for region in regions:
            texts = [entry.condition for entry in region.conditions]
            # What holds where an earlier side does not need not be repeated.
            texts = [text for text in texts if _literal(text) not in excluded] or texts
            sides.append(
                " and ".join(texts) if len(texts) == 1 else f"({' and '.join(map(_in_brackets, texts))})"
            )
            if len(region.conditions) == 1:
                [(atom, truth)] = [_literal(texts[0])]
                excluded.add((atom, not truth))
        cause = regions[0].conditions[0]
        entry = dataclasses.replace(cause, condition=" or ".join(sides))
        limits.restrictions.append(entry)
        limits.unlike_model.append(entry)
    return limits


def _in_brackets(condition: str) -> str:
    """A condition as an operand of `and`."""
    return f"({condition})" if " or " in condition else condition


def _include_all(regions: Sequence[SizeRegion]) -> bool:
    """Whether it is certain that the regions together include all sizes."""
    sides = [
        [[_literal(text) for text in _alternatives(entry.condition)] for entry in region.conditions]
        for region in regions
    ]
    atoms = sorted({atom for side in sides for clause in side for atom, _ in clause})
    if len(atoms) <= _MOST_ATOMS and all(
        any(all(any(values[atom] is truth for atom, truth in clause) for clause in side) for side in sides)
        for values in (
            dict(zip(atoms, truths, strict=True))
            for truths in itertools.product((True, False), repeat=len(atoms))
        )
    ):
        return True
    names = _names_in(regions)
    if len(names) != 1:
        return False
    sizes = {*range(1 << 12), *((1 << power) + step for power in range(12, 21) for step in (-1, 0, 1))}
    numbers = {
        int(node.value)
        for region in regions
        for entry in region.conditions
        for node in ast.walk(ast.parse(entry.condition))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and math.isfinite(node.value)
    }
    sizes |= {number + step for number in numbers for step in (-1, 0, 1) if number + step >= 0}
    return all(any(region.includes({names[0]: size}) for region in regions) for size in sorted(sizes))


def _alternatives(condition: str) -> list[str]:
    """The conditions of which one must hold: two for `h != 20 or w != 10`."""
    try:
        tree = ast.parse(condition, mode="eval").body
    except SyntaxError:
        return [condition]
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or):
        return [ast.unparse(part) for part in tree.values]
    return [condition]


def _literal(condition: str) -> tuple[str, bool]:
    """A condition as an atom and its truth: `n % 2 != 0` is `n % 2 == 0`, false."""
    try:
        tree = ast.parse(condition, mode="eval").body
    except SyntaxError:
        return condition, True
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return ast.unparse(tree), True
    [relation], [bound] = tree.ops, tree.comparators
    if isinstance(tree.left, ast.Name) and isinstance(bound, ast.Constant) and type(bound.value) is int:
        # Sizes are integers: `n > 4` is `n >= 5`.
        shift = int(isinstance(relation, (ast.Gt, ast.LtE)))
        if isinstance(relation, (ast.Gt, ast.GtE, ast.Lt, ast.LtE)):
            return f"{tree.left.id} < {bound.value + shift}", isinstance(relation, (ast.Lt, ast.LtE))
    negated = _NEGATED.get(type(relation))
    if negated is None:
        return ast.unparse(tree), True
    return ast.unparse(ast.Compare(tree.left, [negated()], [bound])), False

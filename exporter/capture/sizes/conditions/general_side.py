"""Chooses the example's side of a condition on sizes, or the other one, where one includes the other.

`if height % 2: x = F.pad(x, (0, 0, 0, 1))` computes for an even height what padding by 0 computes. So a graph
with the padding is valid for all heights, and one without it for even ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ....captured_graph.dimensions import evaluate
from ...fx_import.captured_program import CapturedProgram
from ..size_limits import SizeLimits
from .guards import Guard, Point

_MOST_CAPTURES = 3
_MOST_STEPS = 256
"""The largest distance from the example's sizes at which all conditions may take the other side."""


def point_of_other_sides(
    guards: Sequence[Guard], base: Point, point_at: Callable[[Point], Point], limits: SizeLimits
) -> Point | None:
    """Sizes near the example's at which no condition holds, and which the model supports; None without them.

    Args:
        guards: the conditions.
        base: the example's sizes.
        point_at: completes and clamps sizes to the caller's range.
        limits: the restrictions found.
    """
    names = sorted({name for guard in guards for name in guard.names})
    of_model = [entry.condition for entry in limits.restrictions if entry not in limits.unlike_model]
    for step in range(1, _MOST_STEPS):
        point = point_at({name: base[name] + step for name in names})
        if not any(guard.holds(point) for guard in guards) and all(
            evaluate(condition, point) is not False for condition in of_model
        ):
            return {name: point[name] for name in names}
    return None


def choose_side(
    program: CapturedProgram,
    values: list[object],
    limits: SizeLimits,
    capture: Callable[[Mapping[str, int]], tuple[CapturedProgram, list[object]] | None],
    find_limits: Callable[[CapturedProgram, list[object]], SizeLimits],
) -> tuple[CapturedProgram, SizeLimits]:
    """The capture with the fewest restrictions that the model does not have, and its limits.

    Args:
        program: the capture of the example.
        values: its leaves.
        limits: its limits, with the sizes at which the model takes another side.
        capture: captures the model at other sizes; None if that fails.
        find_limits: finds the limits of a capture with its leaves.
    """
    example = limits.captured_sizes
    results: dict[tuple[tuple[str, int], ...], tuple[CapturedProgram, SizeLimits] | None] = {}

    def capture_once(point: Point) -> tuple[CapturedProgram, SizeLimits] | None:
        key = tuple(sorted(point.items()))
        if key not in results:
            general = capture(point)
            results[key] = None if general is None else (general[0], find_limits(*general))
        return results[key]

    if limits.is_partial:
        # Most models agree with the graph of the other sides at all sizes; then nothing else is needed.
        general = capture_once(limits.general_points[0])
        if general is not None and not general[1].unlike_model and not general[1].refuse(example):
            return general
        limits = find_limits(program, values)
    for point in _points(limits.general_points):
        general = capture_once(point)
        if general is None:
            continue
        # The caller checks the program with the example, whatever is general elsewhere.
        is_valid_for_example = not general[1].refuse(example)
        if is_valid_for_example and len(general[1].unlike_model) < len(limits.unlike_model):
            program, limits = general
        if not limits.unlike_model:
            break
    return program, limits


def _points(points: list[Point]) -> Iterator[Point]:
    """The points to capture at: one that takes the other side of several conditions, then single ones.

    torch treats sizes of 0 and 1 as constants, so points with such sizes are left out.
    """
    large = [point for point in points if min(point.values(), default=0) > 1]
    merged = {name: size for point in large for name, size in point.items()}
    candidates = [merged, *large] if merged not in large and merged else large
    yield from candidates[:_MOST_CAPTURES]

"""Joins the captures of several regions of sizes into one source graph, with an If on the sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from onnx_ir import DataType, Shape, Value

from ....passes.source_builder import SourceBuilder
from ....registration import CaptureError
from ...captured_graph.capture import Capture
from ...captured_graph.dimensions import SizeRestriction
from ...captured_graph.side_alignment import NotJoinable
from ...captured_graph.side_joining import join_sides
from ...captured_graph.size_checks import write_conditions
from ..fx_import.captured_program import CapturedProgram
from ..sizes.size_limits import SizeLimits
from ..sizes.size_regions import SizeRegion, joined_limits


def join_regions(
    regions: Sequence[SizeRegion], read: Callable[[CapturedProgram, SizeLimits], Capture]
) -> tuple[Capture, SizeLimits] | None:
    """One capture for the sizes of all regions, and its limits; None if their results differ in type.

    Args:
        read: makes the source graph of a program with its limits.
    """
    # The last capture, which needs no condition, declares the sizes of the inputs.
    ordered = sorted(regions, key=lambda region: not region.fixed)
    [*captures, joined] = (read(region.program, region.limits) for region in ordered)
    try:
        for region, capture in zip(reversed(ordered[:-1]), reversed(captures), strict=True):
            write = functools.partial(_write_conjunction, capture, region.conditions)
            join_sides(capture, joined, write)
            joined = capture
    except (NotJoinable, CaptureError):
        return None
    return joined, joined_limits(ordered)


def _write_conjunction(
    capture: Capture, conditions: Sequence[SizeRestriction], builder: SourceBuilder
) -> Value:
    """Write the value of all conditions together."""
    truths = write_conditions(builder, capture.source.graph, conditions)

    def both(first: object, second: object) -> Value:
        return builder.emit("sym::and", {"a": first, "b": second}, "", dtype=DataType.BOOL, shape=Shape(()))

    result = functools.reduce(both, truths)
    assert isinstance(result, Value)
    return result

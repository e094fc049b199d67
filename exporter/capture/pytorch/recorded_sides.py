"""Reads recordings of both sides of conditions on numbers of rows into one source graph."""

from __future__ import annotations

from collections.abc import Mapping

from ....registration import CaptureError
from ...captured_graph.capture import Capture
from ...captured_graph.side_alignment import NotJoinable
from ...captured_graph.side_joining import join_decision
from ..fx_import.captured_program import CapturedProgram, RecordedProgram
from ..fx_import.exported_program import import_exported_program, symbol_names
from ..sizes.size_limits import SizeLimits


def read_program(
    program: CapturedProgram,
    limits: SizeLimits | None = None,
    user_names: Mapping[tuple[int, int], str] | None = None,
    source_lines: bool = False,
) -> Capture:
    """The source graph of a program, with both sides of its conditions.

    Args:
        program: the program.
        limits: the sizes for which it is valid; its values' sizes are taken as proven without.
        user_names: the user's names of dimensions, see `symbol_names`.
        source_lines: keep the user's source line on every node.

    Raises:
        CaptureError: a source graph cannot represent the program.
        NotJoinable: an If cannot return the results of both sides.
    """
    names = symbol_names(program, user_names or {})
    unproven = None if limits is None else limits.unproven
    result = import_exported_program(program, names=names, unproven=unproven, source_lines=source_lines)
    if isinstance(program, RecordedProgram):
        # The last condition first: its sides lie within a side of the ones before.
        for position in sorted(program.other_sides, reverse=True):
            other_limits = None if limits is None else limits.sides.get(position)
            side = read_program(program.other_sides[position], other_limits, user_names, source_lines)
            join_decision(result, side, position, program.recorded_sides[position])
    return result


def are_joinable(program: RecordedProgram) -> bool:
    """Whether the sides of a program can become one graph."""
    try:
        read_program(program)
    except (NotJoinable, CaptureError):
        return False
    return True

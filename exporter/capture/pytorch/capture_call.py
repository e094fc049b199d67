"""Captures one call of a PyTorch model by one way, and restores the model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ....passes.faults import is_fault, raise_fault
from ....registration import CaptureError
from ...captured_graph import dimensions
from ...torch_boundary import capture_patches
from ...torch_boundary.boundary import boundary
from ..fx_import.captured_program import CapturedProgram, RecordedProgram
from .recorded_sides import are_joinable

if TYPE_CHECKING:
    from ..direct.decisions import Decisions
    from ..direct.row_branches import RowBranch

Contexts = Sequence[contextlib.AbstractContextManager[object]]
"""Contexts that restore a model at their end; they are entered for each attempt."""


def capture_call(
    model: torch.nn.Module,
    call: tuple[tuple[object, ...], dict[str, object]],
    specification: dict[str, object] | None,
    named: Mapping[tuple[int, int], dimensions.Dimension],
    restoring: Contexts,
    source_lines: bool,
    by: str,
    specialize: bool,
) -> CapturedProgram:
    """Capture one call, under torch's patches, and restore the model."""
    args, kwargs = call
    patches = functools.partial(_apply_patches, restoring, by, named)
    if by != "direct":
        with patches():
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=specification, strict=by == "strict"
            )
    from ...torch_boundary.recording.gradients import Differentiates
    from ..direct.builtin_functions import MakesNumbers
    from ..direct.decisions import Decisions, WeightsDecide
    from ..direct.row_branches import MOST_BRANCHES, MOST_SIDES, first_unequal

    record_call = functools.partial(_record_call, model, args, kwargs, specification, source_lines)
    constants = gradients = False
    keeps_ones = True
    other_namespaces: list[dict[str, object]] | None = []
    most_branches = MOST_BRANCHES
    # Whether both sides of conditions on numbers of rows are recorded, and how many recordings that took.
    has_sides, recordings = True, 0

    def record_by(decisions: Decisions) -> RecordedProgram:
        with patches(gradients=gradients):
            return record_call(decisions, other_namespaces, gradients, keeps_ones)

    def record_other_side(
        sides: Sequence[bool] | None, position: int
    ) -> tuple[RecordedProgram, Sequence[RowBranch]] | None:
        decisions = Decisions(specialize, constants, most_branches, position, sides)
        try:
            return record_by(decisions), decisions.row_branches
        except (Exception, WeightsDecide, Differentiates, MakesNumbers) as error:
            raise_fault(error, "when it recorded the other side of a branch")
            return None

    def record_sides(program: RecordedProgram, decisions: Decisions, start: int = 0) -> RecordedProgram:
        nonlocal recordings
        program.recorded_sides = decisions.recorded_sides
        for position in range(start, len(decisions.recorded_sides)):
            recordings += 1
            if recordings > MOST_SIDES:
                raise CaptureError("the model has too many branches on numbers of rows")
            sides = [*decisions.recorded_sides[:position], not decisions.recorded_sides[position]]
            side_decisions = Decisions(specialize, constants, most_branches, None, sides)
            side_program = record_by(side_decisions)
            if (
                first_unequal(
                    side_program, side_decisions.row_branches, functools.partial(record_other_side, sides)
                )
                is not None
            ):
                raise CaptureError("a branch on the number of rows has other results on a side of another")
            program.other_sides[position] = record_sides(side_program, side_decisions, position + 1)
        return program

    # Each exception asks for another recording with one more setting, so the loop ends.
    while True:
        sides = () if has_sides else None
        decisions = Decisions(specialize, constants, most_branches, None, sides)
        try:
            program = record_by(decisions)
            record_side = functools.partial(record_other_side, sides)
            unequal = first_unequal(program, decisions.row_branches, record_side)
            if unequal is None:
                program.namespaces = other_namespaces or []
                if not decisions.recorded_sides or are_joinable(record_sides(program, decisions)):
                    return program
                has_sides = False
                continue
            # The next recording fails at this branch, or fixes it.
            most_branches = unequal
        except WeightsDecide:
            constants = True
        except Differentiates:
            gradients = True
        except MakesNumbers as error:
            other_namespaces = [*(other_namespaces or []), error.namespace]
        except Exception as error:
            if is_fault(error):
                raise
            if has_sides and decisions.recorded_sides:
                # Then the line is refused, or fixed.
                has_sides = False
                continue
            if decisions.environment is not None and decisions.environment.has_kept_ones:
                # torch may need to know that a computed size is 1, for example where it broadcasts.
                keeps_ones = False
                continue
            if specialize and decisions.row_branches:
                # The general side of the last branch fails; the example may take the other one.
                most_branches = len(decisions.row_branches) - 1
                continue
            if not other_namespaces:
                raise
            # The code in these namespaces may need sizes as plain numbers, for example as keys of a dict.
            other_namespaces = None


def _apply_patches(
    restoring: Contexts,
    by: str,
    named: Mapping[tuple[int, int], dimensions.Dimension],
    *,
    gradients: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Torch's patches for a capture, after which the model is as before."""
    patches = capture_patches.for_capture(
        strict=by == "strict",
        gradients=gradients or by == "gradients",
        recorded=by == "direct",
        dimensions=named,
    )
    return boundary(*patches, *restoring)


def _record_call(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    specification: dict[str, object] | None,
    source_lines: bool,
    decisions: Decisions,
    other_namespaces: list[dict[str, object]] | None,
    gradients: bool,
    keeps_ones: bool,
) -> RecordedProgram:
    """Capture one call directly; its modules are imported here, after the probe for the names they need.

    Raises:
        MakesNumbers: a module outside of `other_namespaces` makes a number of a size, unless that is None.
        Differentiates: the model computes gradients, and `gradients` is False.
    """
    from ...torch_boundary.recording.recorded_sizes import DynamicSizes, FixedSizes
    from ..direct import builtin_functions
    from ..direct.decisions import DecidingEnvironment
    from ..direct.recording import record

    environment = DecidingEnvironment(
        decisions, other_namespaces is not None, keeps_ones, tracked_fakes=[], trace_asserts=True
    )
    sizes = FixedSizes(environment)
    if specification is not None:
        sizes = DynamicSizes(environment, model, specification)
    with builtin_functions.keep_symbolic(model, specification is not None, other_namespaces or []):
        return record(model, args, kwargs, sizes, decisions, source_lines=source_lines, gradients=gradients)

"""Finds the sizes for which a captured program is valid, its other sides included."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator

import torch

from ...torch_boundary import capture_patches
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.process.silence import quiet
from ...torch_boundary.state.model_state import Preserved
from ...torch_boundary.state.remembered_tensors import RememberedTensors
from ..fx_import.captured_program import CapturedProgram, RecordedProgram, placeholders
from ..fx_import.exported_program import symbol_names
from ..sizes import size_limits
from ..sizes.conditions.branches import Branch
from ..sizes.requests import dynamic_shapes as shapes
from ..sizes.search import Search
from ..sizes.trials.size_trials import Tracer

CaptureAtSizes = Callable[[list[object], Collection[str]], list[object] | None]
"""Captures a model with other leaves, and some dimensions static; returns the placeholders, or None."""


def limits_of_sides(
    model: torch.nn.Module,
    leaves: shapes.Leaves,
    structure: pytree.TreeSpec,
    preserved: Preserved,
    remembered: RememberedTensors,
    follow: CaptureAtSizes,
    program: CapturedProgram,
    values: list[object],
    until_general: bool = False,
) -> size_limits.SizeLimits:
    """The limits of a program and of its other sides; arguments are those of `_limits`."""
    common = model, leaves, structure, preserved, remembered, follow
    limits = _limits(*common, program, values, until_general)
    if isinstance(program, RecordedProgram) and not limits.is_partial:
        for position, side_program in program.other_sides.items():
            limits.add_side(position, limits_of_sides(*common, side_program, values))
    return limits


def _limits(
    model: torch.nn.Module,
    leaves: shapes.Leaves,
    structure: pytree.TreeSpec,
    preserved: Preserved,
    remembered: RememberedTensors,
    follow: CaptureAtSizes,
    program: CapturedProgram,
    values: list[object],
    until_general: bool = False,
) -> size_limits.SizeLimits:
    """The sizes for which the program is valid; refuses two names for dimensions that must be equal.

    Args:
        follow: captures the model at other sizes.
        until_general: stop if a capture at other sizes may be valid for more of them.
    """
    names = symbol_names(program, leaves.dimension_names())
    captured = placeholders(program)
    shapes.check_names(leaves, captured, functools.partial(size_limits.lines_of_equality, captured))
    # Without a named dimension there is nothing that a restriction could be about.
    if not names:
        return size_limits.SizeLimits()
    # Only a graph with packed sequences needs their replacements in the trials, too.
    packs = any("packed_sequence" in str(node.target) for node in program.graph.nodes)
    search = Search(captured, values, names, leaves.ranges(), leaves.sums())
    if not search.base:
        return search.limits

    def trace(trial: Callable[[Tracer], list[Branch]]) -> list[Branch]:
        tracer = Tracer(model, program, structure, remembered.forget_fakes)
        patches = _under_capture_patches(model, program, packs)
        # The patches take as long as a trial of a small model, so all trials share them.
        with boundary(quiet(), preserved, remembered), patches:
            return trial(tracer)

    branches = trace(functools.partial(search.run, until_general=until_general))
    while branches:
        # Branches are captured with the real weights, and tried with fake ones.
        followed = [
            (branch, search.conditions_on(follow(search.values_at(branch.point), branch.fixed_names)))
            for branch in branches
        ]
        followed = [(branch, conditions) for branch, conditions in followed if conditions != []]
        branches = trace(functools.partial(search.follow, branches=followed)) if followed else []
    return search.limits


@contextlib.contextmanager
def _under_capture_patches(model: torch.nn.Module, program: CapturedProgram, packs: bool) -> Iterator[None]:
    """The contexts under which a model on fake tensors takes the captured path."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(capture_patches.apply_capture_patches(packs))
        if isinstance(program, RecordedProgram):
            from ..direct import builtin_functions

            stack.enter_context(
                builtin_functions.keep_symbolic(model, True, program.namespaces, program.recurrences)
            )
        yield

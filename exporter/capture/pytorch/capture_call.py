"""Captures one call of a PyTorch model by one way, and restores the model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...captured_graph import dimensions
from ...torch_boundary import capture_patches, probe
from ...torch_boundary.boundary import boundary
from ..fx_import.captured_program import CapturedProgram, RecordedProgram
from .direct_recordings import DirectRecordings

if TYPE_CHECKING:
    from ..direct.decisions import Decisions

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
        with patches(), _kept_types(model, by):
            return torch.export.export(
                model, args, kwargs, dynamic_shapes=specification, strict=by == "strict"
            )
    record_call = functools.partial(_record_call, model, args, kwargs, specification, source_lines)
    return DirectRecordings(record_call, patches, specialize).run()


def _kept_types(model: torch.nn.Module, by: str) -> contextlib.AbstractContextManager[None]:
    """What makes a size an `int` for the model. TorchDynamo does so by itself."""
    if by == "strict" or not probe.has(probe.DIRECT_CAPTURE):
        return contextlib.nullcontext()
    from ..direct.builtin_functions import keep_types

    return keep_types(model)


def _apply_patches(
    restoring: Contexts,
    by: str,
    named: Mapping[tuple[int, int], dimensions.Dimension],
    gradients: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Torch's patches for a capture, after which the model is as before."""
    patches = capture_patches.list_capture_patches(
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
    # Code that calls `int` on sizes may call it on a number of rows, even if all inputs have static sizes.
    is_dynamic = specification is not None or bool(other_namespaces)
    with builtin_functions.keep_symbolic(model, is_dynamic, other_namespaces or []) as recurrences:
        program = record(
            model, args, kwargs, sizes, decisions, source_lines=source_lines, gradients=gradients
        )
    program.recurrences = recurrences
    return program

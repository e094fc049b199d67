"""Captures a model by torch.jit.trace, which follows the path of the example."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable, Iterable, Mapping

import torch

from ....passes.faults import raise_fault
from ....registration import CaptureError
from ...captured_graph import specializations
from ...captured_graph.capture import Capture
from ...captured_graph.code_lines import shown_line
from ...captured_graph.specializations import Specialization
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.process.silence import quiet
from ...torch_boundary.replacements.functions import data_attribute
from ...torch_boundary.replacements.functions.traced_calls import record_traced_calls
from ...torch_boundary.replacements.models.transformer_modules import disable_fused_attention
from ...torch_boundary.state.model_state import Preserved
from ...torch_boundary.state.written_state import gradients_kept, values_kept
from ..capture_options import CaptureOptions
from ..keyword_members import as_parameters
from ..sizes.requests import dynamic_shapes as shapes
from .capture_script import capture_torchscript
from .example_run import copy_tensor
from .script_graph import Program, function_of

_CONVERSION = re.compile(r"Converting a tensor to a (?:Python|NumPy) (\w+)")
_TRACER_WARNING: type[Warning] = torch.jit.TracerWarning  # type: ignore[attr-defined]
_KINDS = {"boolean": "branch", "integer": "int", "index": "int", "array": "array", "list": "array"}
"""The kind of a decision by the type that a tensor is converted to; other numbers are floats."""


def capture_trace(
    model: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
    *,
    refuse_decisions: bool = False,
) -> Capture:
    """Trace a model on the example arguments, and capture the trace as TorchScript.

    TorchScript modules and functions that the model calls keep their branches and loops.

    Args:
        refuse_decisions: refuse a model whose Python code depends on values or sizes of tensors.

    Raises:
        CaptureError: the model cannot be traced, for example because an argument is not a tensor.
    """
    if isinstance(model, torch.export.ExportedProgram) or not callable(model):
        raise CaptureError(f"capture='trace' needs a module or a function, not {type(model).__name__}")
    with as_parameters(model, args, kwargs, options) as options_by_member:
        return _capture_trace(model, args, kwargs, options_by_member, refuse_decisions)


def _capture_trace(
    model: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
    refuse_decisions: bool,
) -> Capture:
    # A trace takes positional or keyword arguments, not both.
    named = shapes.bind(model, args, kwargs) if args and kwargs else dict(kwargs)

    def copied_call() -> tuple[tuple[object, ...], dict[str, object]]:
        """The call on copies: a model may write to its arguments."""
        call = () if named else args, named
        copied: tuple[tuple[object, ...], dict[str, object]]
        copied = pytree.tree_map_only(torch.Tensor, copy_tensor, call)
        return copied

    def run() -> None:
        with Preserved(model, args, kwargs), gradients_kept(model):
            copied_args, copied_kwargs = copied_call()
            model(*copied_args, **copied_kwargs)

    copied_args, copied_kwargs = copied_call()
    example = {"example_kwarg_inputs": copied_kwargs} if copied_kwargs else {"example_inputs": copied_args}

    try:
        with (
            boundary(torch.no_grad(), quiet(), disable_fused_attention(), Preserved(model, args, kwargs)),
            data_attribute.intercept(data_attribute.refuse),
            record_traced_calls(),
            gradients_kept(model),
            values_kept(model, run) as writing,
            warnings.catch_warnings(record=True) as tracer_warnings,
        ):
            warnings.simplefilter("always", _TRACER_WARNING)
            # The check would trace the model again.
            traced = torch.jit.trace(model, check_trace=False, **example)
            _check_complete(traced, writing)
            if refuse_decisions:
                _check_undecided(tracer_warnings)
    except Exception as error:
        raise_fault(error, "when it traced the model")
        raise CaptureError(f"torch.jit.trace could not capture the model: {error}") from error
    capture = capture_torchscript(traced, () if named else args, named, options, has_run=True)
    specializations.write_specializations(capture.source.metadata_props, _decisions_of(tracer_warnings))
    return capture


def _check_complete(traced: Program, writing: Iterable[str]) -> None:
    """Refuse a trace from which torch removed an operator: it treats one that writes to a list as unused."""
    graph = function_of(traced).inlined_graph
    removed = sorted(name for name in writing if not graph.findAllNodes(name))
    if removed:
        raise CaptureError(
            f"a trace leaves out {', '.join(removed)}, which writes to an argument: use another capture"
        )


def _check_undecided(tracer_warnings: Iterable[warnings.WarningMessage]) -> None:
    for entry in tracer_warnings:
        if issubclass(entry.category, _TRACER_WARNING):
            line = shown_line(entry.filename, entry.lineno)
            raise CaptureError(
                f"at {line} the code outside the TorchScript parts depends on tensors or sizes"
            )


def _decisions_of(tracer_warnings: Iterable[warnings.WarningMessage]) -> list[Specialization]:
    """The decisions that a trace fixed, from its warnings, which do not contain the values."""
    decisions: dict[Specialization, None] = {}
    for entry in tracer_warnings:
        conversion = _CONVERSION.match(str(entry.message))
        if conversion is None or not issubclass(entry.category, _TRACER_WARNING):
            continue
        line = shown_line(entry.filename, entry.lineno)
        code = linecache.getline(entry.filename, entry.lineno).strip()
        decisions[Specialization(line, code, _KINDS.get(conversion[1], "float"), None)] = None
    return list(decisions)

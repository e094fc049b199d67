"""`export_report`: a page about exporting a PyTorch model, also where that fails."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ..registration import OpsettaError, Registry, registry_or_default
from .capture.capture_options import CaptureOptions
from .captured_graph.stages import StageClock
from .devices.targets.load_target import resolve_target
from .devices.targets.target import Target
from .export_arguments import ExportableModel, refuse_unknown
from .export_model import capture_model
from .program import SourceModel
from .report.captured import requested_options
from .report.collecting import failed_report, save_report
from .report.records import Report

_CAPTURE = {field.name for field in dataclasses.fields(CaptureOptions)}


def export_report(
    model: ExportableModel,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    path: str | bytes | os.PathLike[str] | None = None,
    opset: int | None = None,
    registry: Registry | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike[str] | Target | None = None,
    title: str | None = None,
    opsets: Sequence[int] | None = None,
    compare: bool = True,
    latency: bool = True,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Report:
    """Export a PyTorch model, and write a page about it; docs/report.md describes it.

    A model that cannot be exported has a report too: what is not supported, where, why, and what to do.

    Args:
        model: the model, as for `export`.
        args: example positional arguments.
        kwargs: example keyword arguments.
        path: the HTML file to write; without one, only the `Report` is returned.
        opset: the ONNX opset to write; by default the target's, or 17.
        registry: the symbolic functions to lower with; by default the default registry.
        optimize: how far the graph is optimized, "none", "basic" or "full".
        target: the runtime or device to write for.
        title: the name of the model; by default its class.
        opsets: the opsets to compare; by default some from 9 to 23. An empty list compares none.
        compare: run the model in onnxruntime and PyTorch, and compare every intermediate result.
        latency: measure runs in onnxruntime.
        progress: called with the name of each stage as it begins.
        options: arguments of `export` that say how to capture, such as `dynamic_shapes`.

    Raises:
        OpsetError: an opset that opsetta does not write.
        UsageError: an argument has an unknown name, a wrong type or value.
        ModelFileError: the file cannot be written.
    """
    from .capture.fx_import.decomposition import Decomposer

    refuse_unknown({name: value for name, value in options.items() if name not in _CAPTURE}, export_report)
    requested_opset, resolved_target = resolve_target(opset, target)
    level = check_level(optimize)
    used_registry = registry_or_default(registry)
    name = title or getattr(model, "__name__", None) or type(model).__name__
    clock = StageClock(progress)
    capture_options = CaptureOptions(**options)
    try:
        captured = capture_model(model, args, kwargs, capture_options, clock)
    except OpsettaError as error:
        stage = clock.stage or "capturing"
        return save_report(
            failed_report(
                name, requested_options(requested_opset, level, resolved_target), error, stage, clock
            ),
            path,
        )
    source = SourceModel(
        captured,
        input_names=capture_options.input_names,
        output_names=capture_options.output_names,
        decompose=Decomposer(),
    )
    return source.report(
        path,
        requested_opset,
        registry=used_registry,
        optimize=level,
        target=resolved_target,
        title=name,
        opsets=opsets,
        compare=compare,
        latency=latency,
        progress=progress,
    )

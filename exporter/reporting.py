"""`export_report`: a page about exporting a PyTorch model, also where that fails."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ..registration import OpsettaError, Registry, registry_or_default
from .entry import capture_model
from .export_arguments import refuse_unknown
from .program import SourceModel
from .report.captured import requested_options
from .report.collecting import failed_report, save_report
from .report.records import Report
from .source.stages import StageClock
from .targets.loading import resolve_target
from .targets.target import Target

_CAPTURE = tuple(inspect.signature(capture_model).parameters)[3:]


def export_report(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | bytes | os.PathLike | None = None,
    opset: int | None = None,
    registry: Registry | None = None,
    optimize: str | bool = DEFAULT_LEVEL,
    target: str | os.PathLike | Target | None = None,
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
        path: the HTML file to write; without one, only the facts are returned.
        opset: the ONNX opset to write, 7 to 26; by default the target's, or 17.
        registry: the symbolic functions to lower with; by default the default registry.
        optimize: how far the graph is optimized, "none", "basic" or "full".
        target: the consumer to write for.
        title: the name of the model; by default its class.
        opsets: the opsets to compare; by default some from 9 to 23. An empty list compares none.
        compare: run the model in onnxruntime and PyTorch, and compare every intermediate result.
        latency: measure runs in onnxruntime.
        progress: called with the name of each stage as it begins.
        options: arguments of `export` that say how to capture, such as `dynamic_shapes`.

    Raises:
        OpsetError: an opset outside 7 to 26.
        UsageError: an argument has an unknown name, a wrong type or value.
        ModelFileError: the file cannot be written.
    """
    from .capture.torch_export.decomposition import Decomposer

    refuse_unknown({name: value for name, value in options.items() if name not in _CAPTURE}, export_report)
    wanted, aim = resolve_target(opset, target)
    level = check_level(optimize)
    used = registry_or_default(registry)
    name = title or getattr(model, "__name__", None) or type(model).__name__
    clock = StageClock(progress)
    try:
        found = capture_model(model, args, kwargs, progress=clock, **options)
    except OpsettaError as error:
        stage = clock.stage or "capturing"
        return save_report(
            failed_report(name, requested_options(wanted, level, aim), error, stage, clock), path
        )
    names: dict[str, Any] = {key: options.get(key) for key in ("input_names", "output_names")}
    source = SourceModel(found, **names, decompose=Decomposer())
    settings: dict[str, Any] = {
        "registry": used,
        "optimize": level,
        "target": aim,
        "title": name,
        "opsets": opsets,
    }
    shown: dict[str, Any] = {"compare": compare, "latency": latency, "progress": progress}
    return source.report(path, wanted, **settings, **shown)

"""A job on a model of a Python file: exports it, and compares it with eager PyTorch."""

from __future__ import annotations

import collections
from typing import Any

import onnx_ir as ir

from ....registration import SOURCE, UsageError
from ....registration.arguments import every_node, overloaded_name
from ...devices.targets.target import Target
from ...factories import Example
from ...torch_boundary.requirements import need_torch
from ..rows import OWN
from ..zoo.python_files import example_from
from .measuring import Measurement, record_graph, record_latency
from .product import is_static, sizes_of
from .settings import Settings, Task

IMPORTS = (
    "torch",
    "opsetta.symbolics",
    "opsetta.exporter.capture.direct.recording",
    "opsetta.exporter.capture.pytorch.capture_model",
    "opsetta.exporter.export_model",
    "opsetta.exporter.lowering.source_passes",
    "opsetta.exporter.running.torch_structures",
    __name__,
)
"""Modules that every such job needs. None of them starts a thread, as onnxruntime does."""


def run(settings: Settings, task: Task, target: Target | None, measurement: Measurement) -> None:
    """Export, compare and time one model; an error leaves the columns measured before it."""
    with measurement.stage("loading"):
        need_torch("a sweep of PyTorch models")
        example = _example(task)
    from ...capture.capture_options import CaptureOptions
    from ...export_model import capture_model, lower_capture

    with measurement.stage("capture"):
        capture = capture_model(
            example.model, example.args, example.kwargs, CaptureOptions(**example.options)
        )
    with measurement.stage("lowering"):
        program = lower_capture(
            capture, task.job.opset, optimize=settings.optimize, target=target, **_names(example)
        )
    record_graph(measurement, program.model, _composed_operators(capture.source.graph, program.model.graph))
    if settings.verify:
        with measurement.stage("comparison"):
            report = program.verify(rtol=settings.rtol, atol=settings.atol)
        measurement.columns["parity_error"] = report.max_absolute_error
    if settings.runs and capture.example is not None:
        from ...running import calls
        from ...running.torch_structures import callable_interface

        interface = callable_interface(capture.interface)
        leaves = calls.flatten(interface, *capture.example)
        record_latency(
            measurement,
            program.model,
            calls.input_values(interface, program.input_names, leaves),
            settings.runs,
        )


def _composed_operators(source: ir.Graph, graph: ir.Graph) -> list[str]:
    """The operators of a source graph that become more than one ONNX node on average."""
    emitted = collections.Counter(node.metadata_props.get(SOURCE, "") for node in every_node(graph))
    counts = collections.Counter(overloaded_name(node) for node in every_node(source))
    return [name for name, count in counts.items() if emitted[name] > count]


def _names(example: Example) -> dict[str, Any]:
    """The options for names, which lowering also accepts."""
    return {name: example.options.get(name) for name in ("input_names", "output_names")}


def _example(task: Task) -> Example:
    """The model and its arguments, with the sizes and the element type of a job.

    Raises:
        OpsettaError: the factory fails, or its model cannot have another element type.
    """
    import torch

    # Every job of a model has the same weights and arguments.
    torch.manual_seed(0)
    job = task.job
    sizes = {name: size for name, size in sizes_of(job.shape).items() if name in task.entry.sizes}
    example = example_from(task.zoo, task.entry.digest, job.model, sizes)
    model, args, kwargs, options = example.model, example.args, example.kwargs, dict(example.options)
    if is_static(job.shape):
        options.pop("dynamic_shapes", None)
        options.pop("dynamic_axes", None)
    if job.dtype != OWN:
        from ...torch_boundary.containers import pytree
        from ...torch_boundary.containers.structures import register_structures

        if not isinstance(model, torch.nn.Module):
            raise UsageError(
                f"only an nn.Module can be converted to other element types, not a {type(model).__name__}"
            )
        dtype = getattr(torch, job.dtype)
        register_structures(args, kwargs)

        def convert_leaf(leaf: object) -> object:
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                return leaf.to(dtype)
            return leaf

        args, kwargs = pytree.tree_map(convert_leaf, (args, kwargs))
        model = model.to(dtype)
    return Example(model, args, kwargs, options)

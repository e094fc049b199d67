"""A job on an ONNX file: converts it, and compares it with the original in onnxruntime, without torch."""

from __future__ import annotations

from ....registration import UsageError
from ....registration.arguments import every_node
from ....registration.schemas import operator_schema
from ...devices.targets.target import Target
from ...load_model import load
from ...onnx_model import OnnxModel
from ...running.model_inputs import inputs_of_model
from ...running.random_inputs import random_inputs
from ..zoo.listing import file_of
from .measuring import Measurement, record_graph, record_latency
from .product import sizes_of
from .settings import Settings, Task

IMPORTS = ("opsetta.symbolics", __name__)
"""Modules that every such job needs. None of them starts a thread, as onnxruntime does."""
_SEED = 0


def run(settings: Settings, task: Task, target: Target | None, measurement: Measurement) -> None:
    """Convert, compare and time one file; an error leaves the columns measured before it."""
    path = file_of(task.zoo, task.job.model)
    with measurement.stage("loading"):
        model = load(path)
        if not isinstance(model, OnnxModel):
            raise UsageError(
                f"'{path}' is not an ONNX model: convert a source file with `opsetta convert` first"
            )
    with measurement.stage("lowering"):
        converted = model.lower(task.job.opset, optimize=settings.optimize, target=target)
    nodes = [node for node in every_node(model.source.graph) if node.domain in ("", "ai.onnx")]
    composed = {node.op_type for node in nodes if operator_schema(node.op_type, task.job.opset) is None}
    record_graph(measurement, converted.model, composed)
    if not settings.verify and not settings.runs:
        return
    feed = random_inputs(inputs_of_model(model.source), _SEED, sizes_of(task.job.shape))
    if settings.verify:
        with measurement.stage("comparison"):
            report = converted.verify((), feed, rtol=settings.rtol, atol=settings.atol)
        measurement.columns["parity_error"] = report.max_absolute_error
    if settings.runs:
        record_latency(measurement, converted.model, feed, settings.runs)

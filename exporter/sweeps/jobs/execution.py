"""Executes one job: makes or reads a model, writes it at an opset, compares and times it."""

from __future__ import annotations

from ...devices.targets.load_target import resolve_target
from ..rows import NO_TARGET, PASSED, WRITTEN
from .measuring import Measurement
from .settings import Settings, Task


def measure(settings: Settings, task: Task) -> dict[str, object]:
    """Run a job in this process, and return the columns of its row."""
    if task.is_python:
        from .python_models import run
    else:
        from .onnx_models import run
    measurement = Measurement()
    try:
        target_name = task.job.target
        _, target = resolve_target(task.job.opset, None if target_name == NO_TARGET else target_name)
        run(settings, task, target, measurement)
        measurement.columns["status"] = PASSED if settings.verify else WRITTEN
    except Exception as error:
        measurement.fail(error)
    return measurement.columns

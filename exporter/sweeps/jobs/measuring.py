"""The measurements of a job: times of its stages, its graph, its latency, and its error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from ....registration import InferenceError, ModelFileError, OpsettaError, UsageError, VerificationError
from ....registration.arguments import every_node
from ...running.sessions.latency import median_seconds
from ..rows import DIFFERS, FAILED, MEMORY, NOT_RUN, REFUSED

_LONGEST = 4000
"""Characters of an error's message in a row."""


class Measurement:
    """The columns of a row as they become known, and the stage that a job is in."""

    def __init__(self) -> None:
        self.columns: dict[str, object] = {}
        self._stage = ""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage, into the column `<name>_seconds`."""
        self._stage, begin = name, time.perf_counter()
        try:
            yield
        finally:
            self.columns[f"{name}_seconds"] = round(time.perf_counter() - begin, 4)

    def fail(self, error: Exception) -> None:
        """Record the exception that ended the job."""
        self.columns["status"] = self._status(error)
        self.columns["error_class"] = type(error).__name__
        self.columns["error"] = str(error).strip()[:_LONGEST]
        if isinstance(error, VerificationError):
            self.columns["parity_error"] = error.error

    def _status(self, error: Exception) -> str:
        if isinstance(error, MemoryError):
            return MEMORY
        if isinstance(error, VerificationError):
            return DIFFERS
        if isinstance(error, InferenceError):
            return NOT_RUN
        is_refusal = isinstance(error, OpsettaError) and (
            self._stage in ("", "capture", "lowering") or isinstance(error, (ModelFileError, UsageError))
        )
        return REFUSED if is_refusal else FAILED


def record_graph(measurement: Measurement, model: ir.Model, composed: Iterable[str]) -> None:
    """Record the size of a graph, and the operators that it composes."""
    names = sorted(composed)
    tensors = [value.const_value for value in model.graph.initializers.values()]
    measurement.columns |= {
        "nodes": len(every_node(model.graph)),
        "composed": len(names),
        "composed_operators": ", ".join(names),
        "weight_bytes": sum(tensor.nbytes for tensor in tensors if tensor is not None),
    }


def record_latency(measurement: Measurement, model: ir.Model, feed: Mapping[str, object], runs: int) -> None:
    """Record the median time of some runs on one thread."""
    measurement.columns["latency_ms"] = round(median_seconds(model, feed, runs) * 1000, 4)

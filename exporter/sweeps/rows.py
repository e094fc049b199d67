"""The rows of a sweep's results, and the statuses of jobs."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable

PASSED = "passed"
WRITTEN = "written"
REFUSED = "refused"
NOT_RUN = "not run"
DIFFERS = "differs"
FAILED = "failed"
TIMEOUT = "timeout"
MEMORY = "memory"
DIED = "died"

STATUSES = {
    PASSED: "The results in onnxruntime agree with those of the model.",
    WRITTEN: "The model was lowered, and nothing was compared.",
    REFUSED: "opsetta raised an error because the model, the opset or the target is not supported.",
    NOT_RUN: "onnxruntime cannot load or run the model.",
    DIFFERS: "The results in onnxruntime are outside tolerance.",
    FAILED: "The model's own code, or opsetta, raised another exception.",
    TIMEOUT: "The job exceeded its time limit.",
    MEMORY: "The job exceeded its memory limit.",
    DIED: "The job's process died twice.",
}
"""What each status means, from best to worst."""
GOOD = (PASSED, WRITTEN)

OWN = "own"
"""The shape or element type that the model itself has."""
NO_TARGET = "none"

Key = tuple[str, int, str, str, str]


@dataclasses.dataclass(frozen=True)
class Job:
    """One model at one opset, shape, element type and target.

    Attributes:
        shape: `"own"`, `"static"`, sizes such as `"batch=8"`, or these with a `+` between them.
        dtype: `"own"`, or the name of a floating-point type.
        target: a name of `opsetta targets`, the path of a TOML file, or `"none"`.
    """

    model: str
    opset: int
    shape: str
    dtype: str
    target: str

    @property
    def key(self) -> Key:
        """The unique key of the job's row."""
        return self.model, self.opset, self.shape, self.dtype, self.target


@dataclasses.dataclass(frozen=True)
class Row:
    """The results of one job. Seconds, bytes and counts are None where the job did not come that far.

    Attributes:
        model, opset, shape, dtype, target: those of the `Job`.
        status: one of `STATUSES`.
        error_class: the name of the exception that ended the job.
        error: its message.
        seconds: how long the job's process ran.
        loading_seconds: making or reading the model.
        capture_seconds: capturing it, with the passes over the source graph.
        lowering_seconds: writing it at the opset.
        comparison_seconds: running it in onnxruntime and by the original, and comparing.
        peak_memory: the most bytes that the process held in memory, libraries included.
        nodes: ONNX nodes.
        composed: how many of the model's operators ONNX has no operator for at this opset: those that take
            more than one ONNX node each, on average; of an ONNX file those that the opset does not have.
        composed_operators: their names.
        weight_bytes: bytes of the initializers.
        parity_error: the largest absolute difference of all outputs.
        latency_ms: median milliseconds of a run in onnxruntime on one thread.
        attempts: how often the job ran; more than once if its process died.
        host: the machine on which it ran.
        finished: when it ended, in ISO 8601 and UTC.
        opsetta: the version of opsetta.
        fingerprint: a digest of what the results depend on; see `fingerprints`.
    """

    model: str
    opset: int
    shape: str
    dtype: str
    target: str
    status: str
    error_class: str = ""
    error: str = ""
    seconds: float | None = None
    loading_seconds: float | None = None
    capture_seconds: float | None = None
    lowering_seconds: float | None = None
    comparison_seconds: float | None = None
    peak_memory: int | None = None
    nodes: int | None = None
    composed: int | None = None
    composed_operators: str = ""
    weight_bytes: int | None = None
    parity_error: float | None = None
    latency_ms: float | None = None
    attempts: int = 1
    host: str = ""
    finished: str = ""
    opsetta: str = ""
    fingerprint: str = ""

    @property
    def key(self) -> Key:
        """The key of the job."""
        return self.model, self.opset, self.shape, self.dtype, self.target

    def as_plain(self) -> dict[str, object]:
        """The row as data for JSON, which has no infinity: such numbers become text."""
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self).items()
        }

    @property
    def is_good(self) -> bool:
        """Whether the job succeeded."""
        return self.status in GOOD


KEY = tuple(field.name for field in dataclasses.fields(Job))
COLUMNS = {field.name: str(field.type).partition(" ")[0] for field in dataclasses.fields(Row)}
"""The columns of the results, with `str`, `int` or `float` for each."""


def count_statuses(rows: Iterable[Row]) -> dict[str, int]:
    """The number of rows with each status, from best to worst, without unused statuses."""
    counts = collections.Counter(row.status for row in rows)
    return {status: counts[status] for status in STATUSES if counts[status]}

"""The common settings of all jobs of a sweep, and the data of one job."""

from __future__ import annotations

import dataclasses

from ....passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ....registration import UsageError
from ..rows import Job
from ..zoo.listing import Entry


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a sweep.

    Attributes:
        optimize: how far graphs are optimized, as for `export`.
        verify: whether results are compared with those of the original model.
        runs: how many runs the latency is the median of; 0 measures none.
        rtol, atol: tolerances; by default those of the output's element type.
    """

    optimize: str = DEFAULT_LEVEL
    verify: bool = True
    runs: int = 5
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        check_level(self.optimize)
        if isinstance(self.runs, bool) or not isinstance(self.runs, int) or self.runs < 0:
            raise UsageError(f"runs must be 0 or more, not {self.runs!r}")


@dataclasses.dataclass(frozen=True)
class Task:
    """A job and the location of its model.

    Attributes:
        zoo: the path of the zoo.
        is_python: whether the zoo is a Python file.
        entry: the model's entry in the zoo.
    """

    job: Job
    zoo: str
    is_python: bool
    entry: Entry

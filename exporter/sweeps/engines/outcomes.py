"""The limits of a job, and its outcome."""

from __future__ import annotations

import dataclasses
from typing import Any

ATTEMPTS = 2
"""How often a job runs if its process dies."""

RAISED = "raised"
DIED = "died"
TIMEOUT = "timeout"
MEMORY = "memory"


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one job.

    Attributes:
        seconds: how long its process may run.
        memory: bytes that its process may hold in memory; None is no limit.
    """

    seconds: float = 600.0
    memory: int | None = None


@dataclasses.dataclass(frozen=True)
class Ended:
    """The outcome of a job's process.

    Attributes:
        result: what the function returned.
        problem: empty, or one of `RAISED`, `DIED`, `TIMEOUT` and `MEMORY`.
        detail: a sentence about the problem, and the last lines that the process printed.
        seconds: how long the process ran.
        peak_memory: the most bytes that the process held in memory at once.
        attempts: how often the job ran.
        host: the name of the machine.
    """

    result: Any = None
    problem: str = ""
    detail: str = ""
    seconds: float = 0.0
    peak_memory: int = 0
    attempts: int = 1
    host: str = ""

    def may_run_again(self) -> bool:
        """Whether the process died, and the job has attempts left."""
        return self.problem == DIED and self.attempts < ATTEMPTS

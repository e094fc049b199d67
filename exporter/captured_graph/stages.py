"""Measures the time and memory of the stages of an export."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True)
class Stage:
    """The time and memory of a finished stage.

    Attributes:
        name: the name of the stage, such as `lowering`.
        seconds: elapsed time.
        memory: resident memory of the process in bytes: the peak if the process reached a new peak during the
            stage, else the larger amount of the stage's begin and end. None if unknown.
        growth: resident memory at the end of the stage minus that at its start; None if unknown.
    """

    name: str
    seconds: float
    memory: int | None
    growth: int | None


class StageClock:
    """Measures stages; called with the name of each stage as it begins, like `progress` of `export`.

    Args:
        progress: another function to call with these names.

    Attributes:
        stages: the finished stages.
        stage: the name of the current stage; None between stages.
    """

    def __init__(self, progress: Callable[[str], None] | None = None):
        self.stages: list[Stage] = []
        self._progress = progress
        self.stage: str | None = None
        self._begin = 0.0
        self._memory: tuple[int | None, int | None] = (None, None)

    def __call__(self, name: str) -> None:
        """End the current stage, if there is one, and begin another."""
        memory = self._end_stage()
        if self._progress is not None:
            self._progress(name)
        self.stage, self._memory, self._begin = name, memory, time.perf_counter()

    def end(self) -> None:
        """End the current stage."""
        if self.stage is not None:
            self._end_stage()

    def _end_stage(self) -> tuple[int | None, int | None]:
        """End the current stage, if there is one; return the current and the peak memory in bytes."""
        seconds = time.perf_counter() - self._begin
        memory = resident_bytes(), _highest()
        if self.stage is None:
            return memory
        (before, peak_before), (after, peak) = self._memory, memory
        amounts = [amount for amount in (before, after) if amount is not None]
        if peak is not None and peak_before is not None and peak > peak_before:
            amounts.append(peak)
        growth = after - before if after is not None and before is not None else None
        # `amounts` has the process's peak only if it rose during this stage.
        self.stages.append(Stage(self.stage, seconds, max(amounts, default=None), growth))
        self.stage = None
        return memory


@contextlib.contextmanager
def time_stage(name: str) -> Iterator[list[Stage]]:
    """Measure the context as one stage; yields a list to which the stage is appended at the end."""
    clock = StageClock()
    clock(name)
    yield clock.stages
    clock.end()


def resident_bytes(process: int | str = "self") -> int | None:
    """Return the resident bytes of a process; None if it has ended, or on systems without /proc."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # `os.sysconf` is missing on Windows.
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _highest() -> int | None:
    """Return the peak memory of this process in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS reports bytes, Linux kilobytes.
    return highest if sys.platform == "darwin" else highest * 1024

"""`sweep`: run every model of a zoo at every opset, shape, element type and target."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...passes.onnx_graph.levels import DEFAULT_LEVEL
from ...registration import DEFAULT_OPSET, OpsettaError, UsageError
from ..files.reading.names import listed
from .engines.engine_names import LOCAL, check_engine
from .engines.outcomes import Ended, Limits
from .engines.processes import LocalEngine
from .engines.ray_cluster import RayEngine
from .jobs.execution import measure
from .jobs.fingerprints import fingerprint
from .jobs.product import check_axes, jobs_of
from .jobs.settings import Settings, Task
from .results.result_files import ResultsFile
from .rows import FAILED, NO_TARGET, OWN, STATUSES, Job, Key, Row, count_statuses
from .zoo.listing import Zoo, list_onnx_files

Progress = Callable[[Row, int, int], None]
_LISTING_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class SweepResults:
    """The results of a sweep.

    Attributes:
        rows: a row for each job, in the order of the product.
        executed: how many of them come from this sweep; the others were in the file already.
    """

    rows: tuple[Row, ...]
    executed: int

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows by status; statuses are ordered from best to worst."""
        return count_statuses(self.rows)

    @property
    def failures(self) -> list[Row]:
        """The rows of failed jobs."""
        return [row for row in self.rows if not row.is_good]

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the matrix of the results as one self-contained page.

        Raises:
            ModelFileError: the path cannot be written.
        """
        from .results.matrix import write_matrix

        write_matrix(path, self.rows)


def sweep(
    zoo: str | os.PathLike[str],
    *,
    opsets: Sequence[int] = (DEFAULT_OPSET,),
    shapes: Sequence[str] = (OWN,),
    dtypes: Sequence[str] = (OWN,),
    targets: Sequence[str] = (NO_TARGET,),
    output: str | os.PathLike[str] | None = None,
    engine: str = LOCAL,
    workers: int | None = None,
    seconds: float = 600.0,
    memory: int | None = None,
    only: str = "",
    again: Sequence[str] = (),
    optimize: str = DEFAULT_LEVEL,
    verify: bool = True,
    runs: int = 5,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Progress | None = None,
) -> SweepResults:
    """Run every model of a zoo at every opset, shape, element type and target; see docs/sweep.md.

    Each job has a process of its own, and does not affect the others. One that dies runs once more.

    Args:
        zoo: a Python file with factories, a folder of ONNX files, or an ONNX file.
        opsets: the opsets to write.
        shapes: `"own"`, the factory's own sizes and dynamic dimensions; `"static"`, without dynamic
            dimensions; or sizes for the parameters of the factories, `"batch=8"`, `"batch=8+sequence=128"`.
        dtypes: `"own"`, `"float16"`, `"bfloat16"`, `"float32"`, `"float64"`.
        targets: as for `export`, or `"none"`.
        output: a file for the results, `.parquet` or `.sqlite`. Jobs whose results it has are not repeated,
            unless the model, the settings, or a version has changed.
        engine: `"local"`; `"ray"` for the Ray cluster of this process or its environment, or else a new one
            on this machine; or `"ray://HOST:PORT"`.
        workers: how many jobs at a time; by default one for each processor.
        seconds: how long a job may take.
        memory: bytes that the process of a job may hold in memory, libraries included. Linux only.
        only: a regular expression; other models are left out.
        again: statuses, such as `"timeout"`, whose jobs are repeated.
        optimize: as for `export`.
        verify: whether results are compared with those of eager PyTorch, or of the original file.
        runs: how many runs the latency is the median of; 0 measures none.
        rtol: relative tolerance, as for `Program.verify`.
        atol: absolute tolerance, likewise.
        progress: called after each job with its row, the number of jobs done, and that of all.

    Raises:
        UsageError: an argument has a wrong value.
        OpsetError: an opset that opsetta does not write.
        ModelFileError: the results cannot be written.
        OpsettaError: the zoo has no models or cannot be read, a package is missing, or the cluster cannot be
            reached.
    """
    settings = Settings(optimize, verify, runs, rtol, atol)
    limits = _limits(seconds, memory)
    _check_choices(engine, workers, again)
    check_axes(opsets, shapes, dtypes, targets)
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(LocalEngine(workers))
        listed = _select_models(_list_zoo(os.fspath(zoo), local), only)
        tasks = {
            job.key: Task(job, listed.path, listed.is_python, listed.models[job.model])
            for job in jobs_of(listed, opsets, shapes, dtypes, targets)
        }
        # A stored row counts only if model, settings and opsetta are those that made it.
        prints = {key: fingerprint(task.job, task.entry.digest, settings) for key, task in tasks.items()}
        file = None if output is None else stack.enter_context(ResultsFile(output))
        rows = {} if file is None else _reusable_rows(file.rows, prints, again)
        due = [task for key, task in tasks.items() if key not in rows]
        used: LocalEngine | RayEngine = local
        if due and engine != LOCAL:
            used = stack.enter_context(RayEngine(engine, workers, local.imports))
        for task, ended in used.run(functools.partial(measure, settings), due, limits):
            row = _row(task.job, ended, prints[task.job.key])
            rows[row.key] = row
            if file is not None:
                file.add(row)
            if progress is not None:
                progress(row, len(rows), len(tasks))
    return SweepResults(tuple(rows[key] for key in tasks), len(due))


def _reusable_rows(
    stored_rows: Mapping[Key, Row], prints: Mapping[Key, str], again: Sequence[str]
) -> dict[Key, Row]:
    """The stored rows of jobs that need not run: nothing has changed, and their status is not repeated."""
    return {
        key: row
        for key, digest in prints.items()
        if (row := stored_rows.get(key)) and row.fingerprint == digest and row.status not in again
    }


def _limits(seconds: float, memory: int | None) -> Limits:
    if not seconds > 0:
        raise UsageError(f"seconds must be more than 0, not {seconds!r}")
    if memory is not None and memory <= 0:
        raise UsageError(f"memory must be a number of bytes, not {memory!r}")
    # The limit is on resident memory, which only /proc tells; RLIMIT_AS would count address space that torch
    # reserves.
    if memory is not None and not pathlib.Path("/proc/self/statm").exists():
        raise UsageError("a memory limit is supported on Linux only: leave it out")
    return Limits(float(seconds), memory)


def _check_choices(engine: str, workers: int | None, again: Sequence[str]) -> None:
    check_engine(engine)
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers!r}")
    unknown = [status for status in again if status not in STATUSES]
    if unknown:
        raise UsageError(f"'{unknown[0]}' is not a status (known: {', '.join(STATUSES)})")


def _list_zoo(path: str, engine: LocalEngine) -> Zoo:
    """List the models of a zoo. A Python file runs in a separate process.

    Raises:
        OpsettaError: there is no such zoo, or it has no models.
    """
    zoo_path = pathlib.Path(path)
    if not zoo_path.exists():
        raise OpsettaError(f"there is no file or folder '{path}'")
    path = os.path.abspath(path)
    if zoo_path.is_dir() or zoo_path.suffix == ".onnx":
        from .jobs import onnx_models

        engine.imports = onnx_models.IMPORTS
        return list_onnx_files(path)
    if zoo_path.suffix != ".py":
        raise OpsettaError(
            f"'{path}' is not a zoo: pass a Python file, a folder of .onnx files, or an .onnx file"
        )
    from .jobs import python_models
    from .zoo.python_files import list_models_or_error

    # The file imports PyTorch; the rest is imported when there are jobs to run.
    engine.imports = ("torch", list_models_or_error.__module__)
    # The user's file may crash, hang or start threads, which would keep this process from forking.
    ended = engine.call(list_models_or_error, path, Limits(_LISTING_SECONDS))
    if ended.problem:
        raise OpsettaError(f"the models of '{path}' cannot be listed: {ended.detail}")
    if isinstance(ended.result, str):
        raise OpsettaError(ended.result)
    zoo: Zoo = ended.result
    # Servers import what all models need once, and each job's fork has it at once.
    engine.imports = (*python_models.IMPORTS, *zoo.imports)
    return zoo


def _select_models(zoo: Zoo, only: str) -> Zoo:
    """The zoo with the models whose name matches.

    Raises:
        UsageError: there is none, or the expression is wrong.
    """
    try:
        models = {name: entry for name, entry in zoo.models.items() if re.search(only, name)}
    except re.error as error:
        raise UsageError(f"'{only}' is not a regular expression: {error}") from error
    if not models:
        names = listed(list(zoo.models), 8)
        raise UsageError(f"no model of '{zoo.path}' matches '{only}' (it has {names})")
    return dataclasses.replace(zoo, models=models)


def _row(job: Job, ended: Ended, digest: str) -> Row:
    """The row of a job that ended."""
    from ... import __version__

    columns: dict[str, Any] = ended.result or {
        "status": ended.problem if ended.problem in STATUSES else FAILED,
        "error": ended.detail,
    }
    return Row(
        *job.key,
        **columns,
        seconds=round(ended.seconds, 4),
        peak_memory=ended.peak_memory or None,
        attempts=ended.attempts,
        host=ended.host,
        finished=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        opsetta=__version__,
        fingerprint=digest,
    )

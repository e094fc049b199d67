"""Jobs of the tests' own commands, on the engines of `opsetta sweep`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opsetta.exporter.sweeps.engines.engine_names import LOCAL, check_engine
from opsetta.exporter.sweeps.engines.outcomes import Limits
from opsetta.exporter.sweeps.engines.processes import LocalEngine, Work
from opsetta.exporter.sweeps.engines.ray_cluster import RayEngine


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--workers` and `--engine`."""
    parser.add_argument("--workers", type=int, help="jobs at a time; by default one for each processor")
    parser.add_argument("--engine", default="local", metavar="local|ray|ray://HOST:PORT")


def run(
    work: Work, jobs: Iterable[Any], options: argparse.Namespace, seconds: float, imports: Sequence[str] = ()
) -> Iterator[tuple[Any, Any, str]]:
    """Run `work` on every job, and give each job, its result and what went wrong.

    Args:
        options: those of `add_options`.
        seconds: how long one job may take before its process is ended.
        imports: modules that all jobs need, and that start no threads.
    """
    check_engine(options.engine)
    local = options.engine == LOCAL
    with (
        LocalEngine(options.workers, imports)
        if local
        else RayEngine(options.engine, options.workers, imports)
    ) as engine:
        for job, ended in engine.run(work, jobs, Limits(seconds)):
            yield job, ended.result, ended.detail

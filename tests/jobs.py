"""Jobs of the tests' own commands, on the engines of `opsetta sweep`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opsetta.exporter.sweeps.engines.open_engine import open_engine
from opsetta.exporter.sweeps.engines.outcomes import Limits
from opsetta.exporter.sweeps.engines.processes import Work


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
    with open_engine(options.engine, options.workers, imports) as engine:
        for job, ended in engine.run(work, jobs, Limits(seconds)):
            yield job, ended.result, ended.detail

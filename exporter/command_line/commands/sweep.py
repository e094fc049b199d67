"""The command `opsetta sweep`."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from ....passes.onnx_graph.levels import DEFAULT_LEVEL
from ....registration import DEFAULT_OPSET, UsageError
from ....registration.printable import printable
from ...files.output.output_paths import resolve
from ...sweeps.engines.engine_names import LOCAL
from ...sweeps.rows import NO_TARGET, OWN, Row, count_statuses
from ..options import export as options
from ..options import sweep as sweep_options
from ..terminal.output import say
from ..terminal.tables import print_json, row, show, table

if TYPE_CHECKING:
    from ...sweeps.run_sweep import SweepResults

_INTERRUPTED = 130
"""What a shell gives for a command that SIGINT ended."""
_MOST_FAILURES = 20


def sweep(
    zoo: sweep_options.Zoo,
    output: sweep_options.Results = None,
    opsets: sweep_options.Opsets = str(DEFAULT_OPSET),
    dtypes: sweep_options.Dtypes = OWN,
    shapes: sweep_options.Shapes = OWN,
    targets: sweep_options.Targets = NO_TARGET,
    engine: sweep_options.Engine = LOCAL,
    workers: sweep_options.Workers = None,
    seconds: sweep_options.Seconds = 600.0,
    memory: sweep_options.Memory = None,
    only: sweep_options.Only = "",
    again: sweep_options.Again = "",
    verify: sweep_options.Compare = True,
    runs: sweep_options.Runs = 5,
    optimize: options.Optimize = DEFAULT_LEVEL,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    html: sweep_options.Html = None,
    as_json: options.Json = False,
) -> None:
    """Export and run many models at many opsets.

    Each combination of model, opset, shape, element type and target gives a row of results.
    """
    from ...sweeps.jobs.product import parse_opsets
    from ...sweeps.results.result_files import is_results
    from ...sweeps.run_sweep import sweep as run_sweep

    if is_results(zoo):
        _draw(zoo, html, output)
        return
    if html is not None:
        resolve(html)
    sweep_arguments: dict[str, Any] = {
        "opsets": parse_opsets(opsets),
        "shapes": _split_list(shapes),
        "dtypes": _split_list(dtypes),
        "targets": _split_list(targets),
        "again": _split_list(again),
        "output": output,
        "engine": engine,
        "workers": workers,
        "seconds": seconds,
        "memory": memory,
        "only": only,
        "verify": verify,
        "runs": runs,
        "optimize": optimize,
        "rtol": rtol,
        "atol": atol,
    }
    try:
        with _progress() as progress:
            results = run_sweep(zoo, **sweep_arguments, progress=progress)
    # Every row is on the disk when its job has ended, so an interrupted sweep loses only the jobs that run.
    except KeyboardInterrupt:
        resume_hint = (
            ""
            if output is None
            else f"; '{output}' has the rows so far, and the same command goes on from there"
        )
        from rich.console import Console

        Console(stderr=True).print(
            f"opsetta: interrupted{resume_hint}", markup=False, highlight=False, soft_wrap=True
        )
        raise typer.Exit(_INTERRUPTED) from None
    if html is not None:
        results.save_html(html)
    if as_json:
        rows = [entry.as_plain() for entry in results.rows]
        print_json({"executed": results.executed, "counts": results.counts, "rows": rows})
    else:
        _summarize(results)
    # Scripts and CI look at the exit code.
    if results.failures:
        raise typer.Exit(1)


def _draw(path: pathlib.Path, html: pathlib.Path | None, output: pathlib.Path | None) -> None:
    if html is None or output is not None:
        raise UsageError(f"'{path}' contains the results of a sweep: draw them with --html FILE, without -o")
    from ...sweeps.results.matrix import write_matrix
    from ...sweeps.results.result_files import read_rows

    rows = read_rows(path)
    write_matrix(html, rows)
    say(f"{html}: {_counts(count_statuses(rows))}")


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Row, int, int], None]]:
    """Yield a function to call after each job: a bar on a terminal, else a line for each job, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        # A log file of a long sweep needs lines; a bar would rewrite one line thousands of times.
        yield lambda entry, count, total: print(
            printable(f"{count}/{total} {_title(entry)}: {entry.status}"), file=console.file, flush=True
        )
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    seen: list[Row] = []
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("listing the models", total=None)

        def show_job(entry: Row, count: int, total: int) -> None:
            if not seen:
                # The time left is estimated from the jobs of this sweep.
                bar.reset(task, total=total, completed=count - 1)
            seen.append(entry)
            bar.update(task, completed=count, description=_counts(count_statuses(seen)))

        yield show_job


def _title(entry: Row) -> str:
    """Describe a job: its model, and the axes with a value of its own."""
    parts = [entry.model, f"opset {entry.opset}", entry.shape, entry.dtype, entry.target]
    return " ".join(part for part in parts if part not in (OWN, NO_TARGET))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "no rows"


def _summarize(results: SweepResults) -> None:
    """Print the number of jobs per opset and status, and the failures."""
    statuses = list(results.counts)
    counts_table = table("opset", "jobs", *statuses)
    for opset in sorted({entry.opset for entry in results.rows}):
        rows = [entry for entry in results.rows if entry.opset == opset]
        counts = count_statuses(rows)
        row(counts_table, str(opset), str(len(rows)), *(str(counts.get(status, 0)) for status in statuses))
    show(counts_table)
    for entry in results.failures[:_MOST_FAILURES]:
        reason = next(iter(entry.error.splitlines()), "")
        say(
            f"{_title(entry)}: {entry.status}: {entry.error_class}{': ' if entry.error_class else ''}{reason}"
        )
    hidden = len(results.failures) - _MOST_FAILURES
    if hidden > 0:
        say(f"and {hidden} more that did not pass")
    reused = len(results.rows) - results.executed
    before = f"; {reused} done before" if reused else ""
    count = len(results.rows)
    say(f"{count} job{'' if count == 1 else 's'}: {_counts(results.counts)}{before}")

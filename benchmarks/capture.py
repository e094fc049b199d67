"""Export time by direct capture and by torch.export, against both exporters of torch.onnx, over the zoo.

Every export writes a file at opset 18. The runs of one model are interleaved, and the first of each is left
out. Prints medians in seconds, and the ratios to the faster exporter of torch.onnx and to the one with
dynamo=True. Needs onnxscript for torch.onnx, and the repository's tests.

    python -m opsetta.benchmarks.capture [NAME ...] [--runs 7] [--cpu] [--json]
"""

import argparse
import contextlib
import json
import logging
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import opsetta
from opsetta.exporter.entry import captured

os.environ["OPSETTA_SWEEP"] = "1"  # Models of full depth.
from opsetta.tests.models.zoo import ARCHITECTURES, BY_NAME

OPSET = 18
COLUMNS = ("capture: direct", "capture: torch.export", "direct", "torch.export", "dynamo", "TorchScript")


def actions(model: torch.nn.Module, kwargs: dict[str, Any], folder: str) -> dict[str, Callable[[], object]]:
    """What is measured, by column."""
    path = os.path.join(folder, "model.onnx")

    def ours(way: str) -> Callable[[], object]:
        return lambda: opsetta.export(model, (), kwargs, opset=OPSET, capture=way).save(path)

    def theirs(dynamo: bool) -> Callable[[], object]:
        args, named = ((), {"kwargs": kwargs}) if dynamo else ((kwargs,), {})
        return lambda: torch.onnx.export(
            model, args, path, dynamo=dynamo, opset_version=OPSET, verbose=False, **named
        )

    return {
        "capture: direct": lambda: captured(model, (), kwargs, capture="direct"),
        "capture: torch.export": lambda: captured(model, (), kwargs, capture="torch.export"),
        "direct": ours("direct"),
        "torch.export": ours("torch.export"),
        "dynamo": theirs(True),
        "TorchScript": theirs(False),
    }


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Without the output of torch.onnx, which prints its progress."""
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        yield


def seconds(action: Callable[[], object], clock: Callable[[], float]) -> float | None:
    """The time of one run; None where torch.onnx cannot export the model."""
    begin = clock()
    with unheard():
        try:
            action()
        except Exception:
            return None
    return clock() - begin


def measure(name: str, runs: int, clock: Callable[[], float], folder: str) -> dict[str, Any]:
    """The median of each column; None where a run failed."""
    architecture = BY_NAME[name]
    todo = actions(architecture.build(), architecture.inputs(2, 7), folder)
    times: dict[str, list[float | None]] = {column: [] for column in todo}
    for _ in range(runs + 1):
        for column, action in todo.items():
            times[column].append(seconds(action, clock))
    row: dict[str, Any] = {"model": name}
    for column, found in times.items():
        known = [item for item in found[1:] if item is not None]
        row[column] = statistics.median(known) if len(known) == runs else None
    others = [row[column] for column in ("dynamo", "TorchScript") if row[column] is not None]
    row["to the faster"] = row["direct"] / min(others) if others else None
    row["to dynamo"] = row["direct"] / row["dynamo"] if row["dynamo"] else None
    row["of torch.export's capture"] = row["capture: direct"] / row["capture: torch.export"]
    return row


def mean(rows: Sequence[dict[str, Any]], column: str) -> float:
    """The geometric mean of a column, without the models that have none."""
    return math.exp(statistics.fmean(math.log(row[column]) for row in rows if row[column] is not None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[each.name for each in ARCHITECTURES])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="CPU time of this process, on a busy machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.cpu:
        torch.set_num_threads(1)
    clock = time.process_time if options.cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        rows = [measure(name, options.runs, clock, folder) for name in options.names]
    ratios = ("to the faster", "to dynamo", "of torch.export's capture")
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("model", *COLUMNS, *ratios, title=f"opset {OPSET}, medians of {options.runs}, seconds")
    for row in rows:
        figures = [row[column] for column in (*COLUMNS, *ratios)]
        table.add_row(row["model"], *("-" if each is None else f"{each:.3f}" for each in figures))
    table.add_row("geometric mean", *[""] * len(COLUMNS), *(f"{mean(rows, each):.3f}" for each in ratios))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()

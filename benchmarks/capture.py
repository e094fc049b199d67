"""Export time by direct capture and by torch.export, against both exporters of torch.onnx.

The models are those of the tests' zoo, with small widths, or well-known models at their real widths. Every
export writes a file at opset 18. The runs of one model are interleaved, and the first of each is left out.
Prints medians in seconds, the ratios to the faster exporter of torch.onnx and to each of the two, and what
direct capture, and lowering and saving after it, take of the time that torch.export takes to capture. An
exporter of torch.onnx counts only if its file has that opset, and gives what the model gives. Decoders do not
return their caches, which neither of the two can write. Needs onnxscript for torch.onnx, and the repository's
tests.

    python -m opsetta.benchmarks.capture [NAME ...] [--real] [--dynamic] [--runs 7] [--cpu] [--json]
        [--columns direct dynamo TorchScript] [--plot FILE.svg]
"""

import argparse
import contextlib
import copy
import functools
import gc
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

import numpy as np
import onnx
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.export_model import capture_model

os.environ["OPSETTA_SWEEP"] = "1"  # Models of full depth.
from opsetta.benchmarks.plots import bars
from opsetta.benchmarks.real_models import MODELS
from opsetta.tests.models.zoo import ARCHITECTURES

OPSET = 18
OURS = ("capture: direct", "capture: torch.export", "direct", "torch.export")
PEERS = ("dynamo", "TorchScript")
RATIOS = ("to the faster", "to dynamo", "to TorchScript", "of torch.export's capture", "after capture")
Kwargs = dict[str, Any]


class Positional(torch.nn.Module):
    """A model with the named arguments of a call by position.

    Without it, tracing makes inputs of the defaults of other arguments.
    """

    def __init__(self, model: torch.nn.Module, names: Sequence[str]):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *args: torch.Tensor) -> Any:
        """Call the model."""
        return self.model(**dict(zip(self.names, args, strict=True)))


def actions(
    model: torch.nn.Module, kwargs: Kwargs, shapes: Any, path: str
) -> dict[str, Callable[[], object]]:
    """What is measured, by column.

    Each exporter of torch.onnx has a model of its own: tracing leaves tensors in attributes of some models,
    such as the window sizes of Swin, and a later export of them takes longer.
    """
    own = {column: copy.deepcopy(model) for column in PEERS}

    def ours(way: str) -> None:
        opsetta.export(model, (), kwargs, opset=OPSET, capture=way, dynamic_shapes=shapes).save(path)

    def dynamo() -> None:
        options = {} if shapes is None else {"dynamic_shapes": shapes}
        torch.onnx.export(
            own["dynamo"], (), path, kwargs=kwargs, dynamo=True, opset_version=OPSET, verbose=False, **options
        )

    def torchscript() -> None:
        options = {} if shapes is None else {"dynamic_axes": shapes}
        torch.onnx.export(
            Positional(own["TorchScript"], list(kwargs)).eval(),
            tuple(kwargs.values()),
            path,
            dynamo=False,
            opset_version=OPSET,
            verbose=False,
            input_names=list(kwargs),
            **options,
        )

    def capture(way: str) -> Any:
        return capture_model(model, (), kwargs, CaptureOptions(capture=way, dynamic_shapes=shapes))

    return {
        "capture: direct": functools.partial(capture, "direct"),
        "capture: torch.export": functools.partial(capture, "torch.export"),
        "direct": functools.partial(ours, "direct"),
        "torch.export": functools.partial(ours, "torch.export"),
        "dynamo": dynamo,
        "TorchScript": torchscript,
    }


def is_right(path: str, model: torch.nn.Module, kwargs: Kwargs) -> bool:
    """Whether a file has the opset, and onnxruntime gives the model's results for the example."""
    imports = onnx.load(path, load_external_data=False).opset_import
    if {each.domain: each.version for each in imports}.get("") != OPSET:
        return False
    session = onnxruntime.InferenceSession(path)
    given = {item.name: kwargs[item.name].numpy() for item in session.get_inputs()}
    results = session.run(None, given)
    expected = [leaf for leaf in torch.utils._pytree.tree_leaves(model(**kwargs)) if leaf is not None]
    return len(results) == len(expected) and all(
        found.shape == wanted.shape
        and np.allclose(found, wanted.numpy(), rtol=1e-2, atol=1e-2 * float(wanted.abs().max()))
        for found, wanted in zip(results, expected, strict=True)
    )


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Without the output of torch.onnx: its progress, and graphs that it refuses, which C++ code prints."""
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        held = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(held, 1)
            os.close(held)


def seconds(action: Callable[[], object], clock: Callable[[], float]) -> float | None:
    """The time of one run; None where torch.onnx cannot export the model."""
    gc.collect()
    begin = clock()
    with unheard():
        try:
            action()
        except Exception:
            return None
    return clock() - begin


def measure(case: Any, kwargs: Kwargs, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """The median of each column; None where a run failed, or the file of an exporter is wrong."""
    model = case.build()
    if getattr(model, "config", None) is not None:
        model.config.use_cache = False
    path = os.path.join(folder, "model.onnx")
    shapes = case.dynamic_shapes if options.dynamic else None
    clock = time.process_time if options.cpu else time.perf_counter
    every = actions(model, kwargs, shapes, path)
    todo = {column: every[column] for column in options.columns}
    times: dict[str, list[float | None]] = {column: [] for column in todo}
    for run in range(options.runs + 1):
        for column, action in list(todo.items()):
            found = seconds(action, clock)
            if run == 0 and column in PEERS and (found is None or not is_right(path, model, kwargs)):
                # It does not count, and its time is not needed.
                del todo[column]
            times[column].append(found)
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
    row: dict[str, Any] = {"model": case.name, **dict.fromkeys((*OURS, *PEERS))}
    for column in todo:
        row[column] = statistics.median(each for each in times[column][1:] if each is not None)
    return row | ratios(row)


def ratios(row: dict[str, Any]) -> dict[str, float | None]:
    """Our times by those of others; None where one is missing."""

    def ratio(column: str, other: float | None) -> float | None:
        return row[column] / other if row[column] is not None and other is not None else None

    others = [row[column] for column in PEERS if row[column] is not None]
    against = (min(others, default=None), row["dynamo"], row["TorchScript"])
    found = dict(zip(RATIOS, (ratio("direct", each) for each in against), strict=False))
    reference, after = row["capture: torch.export"], None
    if reference is not None and row["direct"] is not None and row["capture: direct"] is not None:
        after = (row["direct"] - row["capture: direct"]) / reference
    return found | {RATIOS[-2]: ratio("capture: direct", reference), RATIOS[-1]: after}


def mean(rows: Sequence[dict[str, Any]], column: str) -> str:
    """The geometric mean of a column, without the models that have none."""
    known = [math.log(row[column]) for row in rows if row[column] is not None]
    return f"{math.exp(statistics.fmean(known)):.3f}" if known else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--real", action="store_true", help="well-known models at their real widths")
    parser.add_argument("--dynamic", action="store_true", help="a dynamic batch, and sequence")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="CPU time of this process, on a busy machine")
    parser.add_argument("--columns", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--plot", metavar="FILE.svg", help="write the times of whole exports as a plot")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.cpu:
        torch.set_num_threads(1)
    cases: Any = MODELS if options.real else ARCHITECTURES
    by_name = {case.name: case for case in cases}
    rows = []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name in options.names or by_name:
            case = by_name[name]
            kwargs = case.inputs() if options.real else case.inputs(2, 7)
            rows.append(measure(case, kwargs, options, folder))
    if options.plot:
        exports = ("direct", "torch.export", "TorchScript", "dynamo")
        columns = [column for column in exports if column in options.columns]
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(bars(rows, columns, "seconds of an export at opset 18"))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    shown = (*options.columns, *RATIOS)
    load = os.getloadavg()[0]
    title = f"opset {OPSET}, medians of {options.runs}, seconds; load {load:.1f}"
    table = Table("model", *shown, title=title)
    for row in rows:
        table.add_row(row["model"], *("-" if row[each] is None else f"{row[each]:.3f}" for each in shown))
    table.add_row("geometric mean", *[""] * len(options.columns), *(mean(rows, each) for each in RATIOS))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()

"""The command `opsetta compare`."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....registration import UsageError
from ..options import export as options
from ..options.named_values import parse_sizes
from ..terminal.output import say
from ..terminal.tables import MOST_SHOWN, more, print_json, row, shape_text, show, size_text, table
from .editing import load_onnx

if TYPE_CHECKING:
    from ...running.comparisons.file_comparison import Comparison, OutputDifference

_RUNS, _SEEDS = 20, 2


def compare(
    first: Annotated[pathlib.Path, typer.Argument(metavar="A.onnx", help="A file.")],
    second: Annotated[
        pathlib.Path | None,
        typer.Argument(
            metavar="B.onnx", help="The file to compare it with; not needed to compare two runtimes."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"The number of measured runs of each file; 0 measures no latency. [default: {_RUNS}]"
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help=f"The number of random inputs to compare results on. [default: {_SEEDS}]"),
    ] = None,
    dimensions: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="The size of a named dimension; the default is 2."),
    ] = None,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Compare instead tensors with one name in both files, and name the first that differs.",
        ),
    ] = False,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --layers, what runs the files: onnxruntime, reference (onnx.reference) or openvino. "
            "Pass it twice for another one for the second file, or with one file for that file in both.",
        ),
    ] = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Compare two files: operators, weights, latency and results.

    Both run in onnxruntime, on the same random inputs. With --layers, one file may run in two runtimes.
    """
    from ...running.comparisons.file_comparison import compare_files

    try:
        sizes = parse_sizes(dimensions)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    if layers:
        if runs is not None or seeds is not None:
            raise UsageError("--layers compares the results of one random input, without --runs and --seeds")
        _compare_layers(first, second, runtime or [], sizes, trusted, as_json)
        return
    if runtime:
        raise UsageError("--runtime needs --layers")
    if second is None:
        raise UsageError("pass the file to compare with, or --layers and --runtime for another runtime")
    comparison = compare_files(
        first,
        second,
        runs=_RUNS if runs is None else runs,
        seeds=range(seeds or _SEEDS),
        dimensions=sizes,
        trusted=trusted,
    )
    if as_json:
        print_json(_plain(comparison))
        return
    grid = table("", str(first), str(second))
    for cells in _facts(comparison):
        row(grid, *cells)
    show(grid)
    grid = table("operator", "", "", "")
    for name, counts in list(_operators(comparison).items())[:MOST_SHOWN]:
        row(grid, name, str(counts[0]), str(counts[1]), f"{counts[1] - counts[0]:+d}".replace("+0", ""))
    if len(_operators(comparison)) > MOST_SHOWN:
        row(grid, more(len(_operators(comparison))), "", "", "")
    show(grid)
    grid = table("output", "largest absolute difference", "largest relative difference")
    for output in comparison.outputs:
        row(grid, output.name, *_differences(output))
    show(grid)


def _compare_layers(
    first: pathlib.Path,
    second: pathlib.Path | None,
    runtimes: list[str],
    sizes: Mapping[str, int],
    trusted: bool,
    as_json: bool,
) -> None:
    """Print the error of each tensor, and the first one outside tolerance; exit with 1 if there is one."""
    from ...running.model_inputs import inputs_of_model
    from ...running.random_inputs import random_inputs

    # A single runtime runs both files, or is compared with onnxruntime on one file.
    pair = [*([runtimes[0] if second else "onnxruntime"] if len(runtimes) == 1 else []), *runtimes]
    pair = pair or ["onnxruntime", "onnxruntime"]
    if len(pair) != 2:
        raise UsageError("--runtime may be passed twice at most")
    if second is None and pair[0] == pair[1]:
        raise UsageError("pass a second file, or another runtime with --runtime: reference or openvino")
    model = load_onnx(first, trusted)
    second_model = model if second is None else load_onnx(second, trusted)
    feed = random_inputs(inputs_of_model(model.model), sizes=sizes)
    reports = model.compare_layers(second_model, feed, runtimes=(pair[0], pair[1]))
    parting = next((report.name for report in reports if not report.within_tolerance), None)
    if as_json:
        # JSON has no infinity, which is the error of tensors of other shapes.
        errors = {r.name: r.max_absolute_error for r in reports}
        tensors = [
            {"name": name, "max_absolute_error": error if math.isfinite(error) else None}
            for name, error in errors.items()
        ]
        print_json({"runtimes": pair, "tensors": tensors, "first_outside_tolerance": parting})
    else:
        grid = table("tensor", "largest absolute error", "")
        for report in reports[:MOST_SHOWN]:
            verdict = "" if report.within_tolerance else report.problem or "differs"
            row(grid, report.name, f"{report.max_absolute_error:.3g}", verdict)
        show(grid)
        say(f"the first tensor that differs is '{parting}'" if parting else "all are within tolerance")
    if parting is not None:
        raise typer.Exit(1)


def _operators(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """The number of nodes of each operator in both files; most frequent first."""
    a, b = (file["operators"] for file in comparison.files)
    counts = {name: (a.get(name, 0), b.get(name, 0)) for name in [*a, *b]}
    return dict(sorted(counts.items(), key=lambda item: (-max(item[1]), item[0])))


def _facts(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    def both(title: str, text: Callable[[Mapping[str, Any]], str]) -> tuple[str, str, str]:
        return title, text(comparison.files[0]), text(comparison.files[1])

    yield both("file", lambda file: size_text(file["bytes"]))
    yield both("opsets", lambda file: ", ".join(f"{d} {v}" for d, v in file["opset_imports"].items()))
    yield both("IR version", lambda file: str(file["ir_version"]))
    yield both("nodes", lambda file: str(file["nodes"]))
    yield both("initializers", lambda file: str(file["initializers"]["count"]))
    yield both("weights", lambda file: size_text(file["initializers"]["bytes"]))
    for section in ("inputs", "outputs"):
        listed = ["; ".join(map(_value, file[section][:MOST_SHOWN])) for file in comparison.files]
        yield section, listed[0], listed[1]
    for level, (a, b) in comparison.latency.items():
        yield f"latency, optimizations: {level}", f"{a:.3f} ms", f"{b:.3f} ms ({b / a:.2f})"


def _value(value: Mapping[str, Any]) -> str:
    return f"{value['name']} {value['type']}{shape_text(value['shape'])}"


def _differences(output: OutputDifference) -> tuple[str, str]:
    if output.absolute is None:
        return output.reason, ""
    return f"{output.absolute:.3g}", f"{output.relative:.3g}"


def _plain(comparison: Comparison) -> dict[str, object]:
    """Convert the comparison for JSON, which has no infinity: it becomes null, and `reason` explains it."""
    outputs = []
    for output in comparison.outputs:
        plain = dataclasses.asdict(output)
        if plain["absolute"] is not None and not math.isfinite(plain["absolute"]):
            plain |= {"absolute": None, "relative": None, "reason": "one is not finite where the other is"}
        elif plain["relative"] is not None and not math.isfinite(plain["relative"]):
            plain["relative"] = None
        outputs.append(plain)
    return {
        "files": list(comparison.files),
        "operators": {name: list(counts) for name, counts in _operators(comparison).items()},
        "latency_ms": {level: list(times) for level, times in comparison.latency.items()},
        "outputs": outputs,
    }

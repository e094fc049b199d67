"""The command `opsetta report`."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ....registration import UsageError
from ...files.output.output_paths import resolve
from ...torch_boundary.requirements import need_torch
from ..options import export as options
from ..options.user_code import capture_options, load, names, quiet_stdout, torch_boundary
from ..terminal.output import say
from ..terminal.progress import stages
from ..terminal.tables import count_text, print_json
from .targets import resolve_target

if TYPE_CHECKING:
    from ...factories import Example
    from ...report.records import Report


def report(
    model: Annotated[
        str,
        typer.Argument(
            metavar="PATH.py:FUNCTION | MODEL",
            help="A factory or a TorchScript file, as for export; or a file that `convert` takes.",
        ),
    ],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    inputs: options.Inputs = None,
    opset: options.Opset = None,
    title: Annotated[str | None, typer.Option(help="The name of the model; by default its class.")] = None,
    opsets: Annotated[
        str | None,
        typer.Option(
            metavar="9,13,18", help="The opsets to compare; by default some from 9 to 23, or 'none'."
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Run the model, and compare every result.")
    ] = True,
    latency: Annotated[
        bool, typer.Option("--latency/--no-latency", help="Measure runs in onnxruntime at each opset.")
    ] = True,
    dynamic: options.Dynamic = None,
    input_names: options.InputNames = None,
    output_names: options.OutputNames = None,
    mutations: options.Mutations = None,
    capture: options.CaptureMethod = None,
    specialize: options.Specialize = False,
    weights: options.StoredWeights = None,
    optimize: options.Optimize = DEFAULT_LEVEL,
    target: options.Target = None,
    symbolics: options.Symbolics = None,
    trusted: options.Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the data of the report as JSON.")] = False,
) -> None:
    """Write a page about an export, also about one that fails.

    The exit code is 1 if the model cannot be written, or its results differ.
    """
    resolve_target(opset, target)
    check_level(optimize)
    resolve(output)
    to = {"opset": opset, "optimize": optimize, "target": target}
    page_options: dict[str, Any] = {
        "title": title,
        "opsets": _opsets(opsets),
        "compare": compare,
        "latency": latency,
    }
    capturing = {
        "input_names": names(input_names),
        "output_names": names(output_names),
        "mutations": mutations,
        "weights": weights,
        "capture": capture,
        "specialize": True if specialize else None,
    }
    with quiet_stdout(), stages() as stage:
        page_options["progress"] = stage
        if (model.endswith(".py") or model.rpartition(":")[0].endswith(".py")) or _is_torchscript(model):
            need_torch("exporting")
            with torch_boundary(stage):
                example = load(model, symbolics, inputs)
                giver = "--input names" if inputs else f"the factory '{model}' gives"
                page_options |= capture_options(example, dynamic, giver, **capturing)
                written_report = _of_example(example, output, to | page_options)
        else:
            capture_choices = inputs, dynamic, symbolics, *capturing.values()
            written_report = _of_file(model, output, trusted, to, page_options, capture_choices)
    if as_json:
        print_json(written_report.to_json())
    else:
        say(f"{output}: {_summary(written_report)}")
    if written_report.written is None or (
        written_report.parity is not None and written_report.parity.agrees is False
    ):
        raise typer.Exit(1)


def _of_example(example: Example, output: pathlib.Path, options: dict[str, Any]) -> Report:
    """The report of a PyTorch model."""
    from ...reporting import export_report

    return export_report(example.model, example.args, example.kwargs, path=output, **options)


def _of_file(
    path: str,
    output: pathlib.Path,
    trusted: bool,
    to: dict[str, Any],
    page_options: dict[str, Any],
    capture_choices: Sequence[object],
) -> Report:
    """The report of an ONNX file, a source file, or a file of another framework.

    Raises:
        UsageError: there are options about the capture of a PyTorch model.
    """
    if any(capture_choices):
        raise UsageError(
            f"'{path}' is not a PyTorch model, which --input, --dynamic, --input-names, --output-names, "
            "--mutations, --capture, --specialize, --weights and --symbolics are for"
        )
    from ...load_model import load as load_model
    from ...program import SourceModel

    page_options["progress"]("loading")
    read = load_model(path, trusted=trusted)
    page_options["title"] = page_options["title"] or pathlib.Path(path).name
    if isinstance(read, SourceModel):
        return read.report(output, **to, **page_options)
    if to["opset"] is None and to["target"] is None:
        return read.report(output, **page_options)
    return read.lower(**to).report(output, **page_options)


def _is_torchscript(path: str) -> bool:
    """Whether a file is a zip archive, as TorchScript files are."""
    from ...files.small_files import open_regular

    try:
        with open_regular(path) as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _opsets(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if text.strip() == "none":
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--opsets must be numbers separated by commas, such as 9,13,18, not '{text}'"
        ) from error


def _summary(written_report: Report) -> str:
    if written_report.written is None:
        problem, *_ = written_report.problems
        if not problem.places:
            # A stage failed, which does not depend on the opset.
            return f"the export failed while {problem.subject}: {problem.reason.splitlines()[0]}"
        listed = ", ".join(dict.fromkeys(problem.subject for problem in written_report.problems))
        return f"opset {written_report.asked['opset']} is not possible: {listed}"
    text = f"opset {written_report.asked['opset']}, {count_text(written_report.written.nodes, 'node')}"
    if written_report.parity is None or written_report.parity.agrees is None:
        return text
    worst = max((output.error for output in written_report.parity.outputs), default=math.nan)
    verb = "agrees with" if written_report.parity.agrees else "differs from"
    return f"{text}; {verb} {written_report.parity.against}: largest absolute error {worst:.3g}"

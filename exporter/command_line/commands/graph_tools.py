"""The commands `opsetta diff`, `opsetta reduce` and `opsetta simplify`."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import subprocess
import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

from ....registration import UsageError
from ..options import export as options
from ..terminal.output import Output, say
from ..terminal.tables import print_json
from .editing import load_onnx, output_path, write_result

if TYPE_CHECKING:
    from ...onnx_model import OnnxModel

_SECONDS = 600
"""A command that takes longer counts as one that does not fail."""


def diff(
    first: Annotated[pathlib.Path, typer.Argument(metavar="A.onnx", help="A file.")],
    second: Annotated[pathlib.Path, typer.Argument(metavar="B.onnx", help="The file to compare it with.")],
    names: Annotated[
        bool, typer.Option("--names", help="Also compare the names of nodes and values.")
    ] = False,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Show what differs between two files, node by node.

    The exit code is 1 if anything differs.
    """
    differences = load_onnx(first, trusted).differences(load_onnx(second, trusted), names=names)
    if as_json:
        print_json(dataclasses.asdict(differences))
    else:
        for line in differences.lines:
            say(line)
        for name, difference in differences.weights.items():
            say(f"weight '{name}': {difference}")
        if not differences:
            say("no differences")
    if differences:
        raise typer.Exit(1)


def reduce(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to reduce.")],
    command: Annotated[
        str,
        typer.Option(
            "--keep-failing",
            metavar="COMMAND",
            help="A command that fails for the file, whose path is its last argument, or replaces {}.",
        ),
    ],
    output: options.ChangedFile = None,
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Find a small part of a model for which a command still fails.

    It fails for the part with the same exit code as for the whole model.
    """
    output = output_path(model, output, "reduced")
    written = Output(output)
    words = shlex.split(command)
    if not words:
        raise UsageError("--keep-failing: pass a command")
    source = load_onnx(model, trusted)
    with tempfile.TemporaryDirectory(prefix="opsetta-") as name:
        file = pathlib.Path(name, "model.onnx")
        arguments = [word.replace("{}", str(file)) for word in words]
        if arguments == words:
            arguments.append(str(file))

        def exit_code(part: OnnxModel) -> int:
            part.save(file)
            try:
                done = subprocess.run(arguments, capture_output=True, timeout=_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return 0
            except OSError as error:
                raise UsageError(f"--keep-failing: '{words[0]}' cannot be run: {error.strerror}") from None
            return done.returncode

        expected = exit_code(source)
        if not expected:
            raise UsageError(f"the command does not fail for '{model}', so there is nothing to reduce")
        reduced = source.reduce(lambda part: exit_code(part) == expected)
    write_result(written, reduced, output, external_data, as_json)


def simplify(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to simplify.")],
    output: options.ChangedFile = None,
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Fold constants, and remove what no output needs.

    The file keeps its opset.
    """
    output = output_path(model, output, "simplified")
    written = Output(output)
    source = load_onnx(model, trusted)
    simplified = source.lower(source.opset, optimize="full")
    write_result(written, simplified, output, external_data, as_json)

"""The commands `opsetta extract`, `opsetta join` and `opsetta edit`."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from ....registration import UsageError
from ....registration.opsets import OPSET_RANGE
from ..options import export as options
from ..options.named_values import parse_values
from ..terminal.output import Output
from ..terminal.tables import count_text

if TYPE_CHECKING:
    from ...onnx_model import OnnxModel
    from ...program import Program

Model = Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to change.")]


def extract(
    model: Model,
    output: options.ChangedFile = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="A value that becomes an input; by default the model's inputs. May be repeated.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="NAME",
            help="A value that becomes an output; by default the model's outputs. May be repeated.",
        ),
    ] = None,
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Write the part of a model between given inputs and outputs."""
    output = output_path(model, output, "part")
    written = Output(output)
    part = load_onnx(model, trusted).extract(inputs or (), outputs or ())
    write_result(written, part, output, external_data, as_json)


def join(
    first: Annotated[pathlib.Path, typer.Argument(metavar="FIRST.onnx", help="The file that runs first.")],
    second: Annotated[pathlib.Path, typer.Argument(metavar="SECOND.onnx", help="The file that follows it.")],
    output: options.OutputFile,
    connect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OUTPUT=INPUT",
            help="An output of the first file, and the input that it feeds; by default those of one name.",
        ),
    ] = None,
    keep_outputs: Annotated[
        bool, typer.Option("--keep-outputs", help="Also return the outputs that feed an input.")
    ] = False,
    opset: Annotated[
        int | None,
        typer.Option(help=f"The opset of the result, {OPSET_RANGE}; by default the higher one of both."),
    ] = None,
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Write two models as one.

    Outputs of the first model become inputs of the second. A model at another opset is converted.
    """
    written = Output(output)
    producer, consumer = load_onnx(first, trusted), load_onnx(second, trusted)
    shared_names = {name: name for name in producer.output_names if name in consumer.input_names}
    connections = parse_values(connect, "--connect", "OUTPUT=INPUT") or shared_names
    if not connections:
        raise UsageError(
            f"no output of '{first}' ({', '.join(producer.output_names)}) has the name of an input of "
            f"'{second}' ({', '.join(consumer.input_names)}): pass --connect OUTPUT=INPUT"
        )
    joined = producer.join(consumer, connections, keep_outputs=keep_outputs, opset=opset)
    write_result(written, joined, output, external_data, as_json)


def edit(
    model: Model,
    output: options.ChangedFile = None,
    drop_output: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An output to remove, and what only it needs.")
    ] = None,
    set_constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=VALUE",
            help="Fix an input at a number or text for all its elements, or at an array in JSON, x=[[1,2]].",
        ),
    ] = None,
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Remove outputs of a model, or fix inputs at constants."""
    constants: dict[str, object] = {}
    for name, text in parse_values(set_constant, "--set-constant", "INPUT=VALUE").items():
        try:
            constants[name] = json.loads(text)
        except ValueError:
            raise UsageError(f"--set-constant: '{text}' is no number, text or array in JSON") from None
    if not drop_output and not constants:
        raise UsageError("pass --drop-output or --set-constant")
    output = output_path(model, output, "edited")
    written = Output(output)
    edited = load_onnx(model, trusted).edit(drop_outputs=drop_output or (), constants=constants)
    write_result(written, edited, output, external_data, as_json)


def output_path(
    model: pathlib.Path, output: pathlib.Path | None, change: str, remedy: str = "pass another -o"
) -> pathlib.Path:
    """The file to write, by default beside the model.

    Raises:
        UsageError: it is the model itself; the error ends with the remedy.
    """
    if output is None:
        # The path of a folder may be ".", which has no name.
        path = model if model.stem else model.resolve()
        return path.with_name(f"{path.stem}.{change}.onnx")
    if output.exists() and output.resolve() == model.resolve():
        raise UsageError(f"'{output}' is the model itself: {remedy}")
    return output


def load_onnx(path: pathlib.Path, trusted: bool) -> OnnxModel:
    """The model in an ONNX file.

    Raises:
        UsageError: the file has another format.
        ModelFileError: it cannot be read.
    """
    from ...load_model import load
    from ...onnx_model import OnnxModel

    loaded = load(path, trusted=trusted)
    if not isinstance(loaded, OnnxModel):
        raise UsageError(f"'{path}' is not an ONNX file: run `opsetta convert {path}` first")
    return loaded


def load_as_onnx(path: pathlib.Path, trusted: bool, opset: int | None = None) -> OnnxModel | Program:
    """The model in a file at an opset: by default its own, or the default one for files without an opset.

    Raises:
        OpsettaError: the file cannot be read, or the opset cannot express it.
    """
    from ...load_model import load
    from ...onnx_model import OnnxModel

    loaded = load(path, trusted=trusted)
    return loaded if opset is None and isinstance(loaded, OnnxModel) else loaded.lower(opset)


def write_result(
    written: Output, model: OnnxModel, path: pathlib.Path, external_data: bool | None, as_json: bool
) -> None:
    """Save a model, and print what it is."""
    written.save(model, external_data)
    node_count = model.model.graph.num_nodes()
    nodes = count_text(node_count, "node")
    facts: dict[str, object] = {
        "file": str(path),
        "opset": model.opset,
        "bytes": written.size,
        "nodes": node_count,
        "inputs": model.input_names,
        "outputs": model.output_names,
    }
    interface = f"{', '.join(model.input_names) or 'no inputs'} -> {', '.join(model.output_names)}"
    text = f"{path}: opset {model.opset}, {nodes}, {facts['bytes']} bytes, {interface}"
    written.report(facts, text, as_json=as_json)

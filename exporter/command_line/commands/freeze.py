"""The command `opsetta freeze`."""

from __future__ import annotations

import pathlib
import time
from typing import IO, Annotated

import typer

from ....registration import UsageError
from ..options import export as options
from ..options.named_values import parse_values
from ..terminal.output import Output, Written

_TEXT = (".pbtxt", ".prototxt", ".textproto", ".txt")
"""Suffixes of files that are written as text."""

Checkpoint = Annotated[
    pathlib.Path | None,
    typer.Option(
        help="The checkpoint, model.ckpt-5, or a folder with one; by default the one beside a MetaGraph, or "
        "in a SavedModel."
    ),
]
Outputs = Annotated[
    str | None, typer.Option(help="Results to keep, separated by commas; by default those of the signature.")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key", metavar="VARIABLE=KEY", help="The key of a variable in the checkpoint. May be repeated."
    ),
]
Signature = Annotated[str | None, typer.Option(help="The signature that has the outputs.")]
AllowLinks = Annotated[
    bool, typer.Option("--allow-links", help="Follow links out of the checkpoint's folder.")
]


def freeze(
    graph: Annotated[
        pathlib.Path,
        typer.Argument(metavar="GRAPH.pb | GRAPH.meta | SAVED_MODEL", help="The TensorFlow graph to freeze."),
    ],
    output: Annotated[
        pathlib.Path,
        typer.Option(
            "--output", "-o", help="The GraphDef to write: text if it is called .pbtxt; - is standard output."
        ),
    ],
    checkpoint: Checkpoint = None,
    outputs: Outputs = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            help="Results that become placeholders, separated by commas: those of a queue or an iterator."
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="The value of a placeholder: is_training=false. May be repeated.",
        ),
    ] = None,
    keys: Keys = None,
    signature: Signature = None,
    allow_links: AllowLinks = False,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Write a TensorFlow graph with its variables as constants.

    Nodes that inference does not need are removed.
    """
    from google.protobuf import text_format

    from ...capture.tensorflow.freezing import frozen_graph

    written = Output(output)
    begin = time.perf_counter()
    frozen = frozen_graph(
        graph,
        checkpoint,
        outputs,
        inputs=inputs,
        values={name: _number(name, text) for name, text in parse_values(values, "--set").items()},
        keys=parse_values(keys, "--key"),
        signature=signature,
        allow_links=allow_links,
        trusted=trusted,
    )

    def write(file: IO[bytes]) -> None:
        if output.suffix.lower() in _TEXT:
            file.write(text_format.MessageToString(frozen.message()).encode())
        else:
            frozen.write(file)

    written.save(Written(write), None)
    nodes = len(frozen.graph_def.node)
    facts: dict[str, object] = {
        "file": str(output),
        "bytes": written.size,
        "nodes": nodes,
        "variables": len(frozen.weights),
        "outputs": frozen.outputs,
        "seconds": round(time.perf_counter() - begin, 3),
    }
    text = f"{output}: {nodes} nodes, {len(frozen.weights)} variables as constants, {written.size} bytes"
    written.report(facts, text, as_json=as_json)


def _number(name: str, text: str) -> bool | int | float:
    """A number or a truth value."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    raise UsageError(f"--set: the value of '{name}' must be a number, true or false, not '{text}'")

"""The options of commands that read TensorFlow files."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from ....registration import UsageError

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="NAME,...",
        help="Of a TensorFlow file: the results that a caller feeds, x or x:0, with a shape in brackets to "
        "replace the file's, x:0[-1,224,224,3]. May be repeated.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--outputs", metavar="NAME,...", help="Of a TensorFlow file: the results to return."),
]
Form = Annotated[
    str,
    typer.Option("--input-format", metavar="auto|binary|text", help="The format of a TensorFlow file."),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag of the graph of a SavedModel.")
]
Signature = Annotated[str | None, typer.Option(help="The signature of a SavedModel or MetaGraph.")]
Checkpoint = Annotated[
    pathlib.Path | None,
    typer.Option(metavar="PREFIX", help="The checkpoint with a TensorFlow graph's variables, model.ckpt-5."),
]
InputsAsNchw = Annotated[
    list[str] | None,
    typer.Option("--inputs-as-nchw", metavar="NAME,...", help="Inputs to take with their channels first."),
]
OutputsAsNchw = Annotated[
    list[str] | None,
    typer.Option(
        "--outputs-as-nchw", metavar="NAME,...", help="Outputs to return with their channels first."
    ),
]

KeepParseExample = Annotated[
    bool,
    typer.Option(
        "--keep-parse-example",
        help="Refuse parsers of tf.train.Example messages, whose features are inputs otherwise.",
    ),
]

Extensions = Annotated[
    bool,
    typer.Option(
        "--extensions",
        help="Of a TensorFlow file: write patterns, splits and joins of strings as operators of "
        "onnxruntime-extensions (ai.onnx.contrib), which a session needs to load the file.",
    ),
]


def load_options(
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_format: str,
    tags: Sequence[str] | None,
    signature: str | None,
    checkpoint: pathlib.Path | None,
    inputs_as_nchw: Sequence[str] | None,
    outputs_as_nchw: Sequence[str] | None,
    keep_parse_example: bool = False,
) -> dict[str, Any]:
    """The arguments of `load` from those of a command; without those that are not given.

    Raises:
        UsageError: one is out of form.
    """
    if input_format not in ("auto", "binary", "text"):
        raise UsageError(f"--input-format must be auto, binary or text, not '{input_format}'")
    arguments = {
        "inputs": _inputs(inputs),
        "outputs": _names(outputs),
        "input_format": None if input_format == "auto" else input_format,
        "tags": list(tags) if tags else None,
        "signature": signature,
        "checkpoint": checkpoint,
        "inputs_as_nchw": _names(inputs_as_nchw),
        "outputs_as_nchw": _names(outputs_as_nchw),
        "keep_parse_example": keep_parse_example or None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


_NAME = re.compile(r"\s*([^\[\],\s]+)\s*(\[[^\]]*\])?\s*(,|$)")


def _inputs(texts: Sequence[str] | None) -> dict[str, list[int] | None] | None:
    """Names with their shapes, from `x:0[-1,3],y`."""
    if not texts:
        return None
    shapes: dict[str, list[int] | None] = {}
    for name, shape in (pair for text in texts for pair in _split("--inputs", text)):
        if name in shapes:
            raise UsageError(f"--inputs: '{name}' occurs twice")
        shapes[name] = None if shape is None else _sizes(name, shape)
    return shapes


def _names(texts: Sequence[str] | None) -> list[str] | None:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()] if texts else None


def _split(option: str, text: str) -> Iterator[tuple[str, str | None]]:
    position = 0
    while position < len(text):
        match = _NAME.match(text, position)
        if match is None:
            raise UsageError(f"{option}: '{text}' is not a list of names such as x:0,y:0[-1,3]")
        yield match[1], match[2]
        position = match.end()


def _sizes(name: str, shape: str) -> list[int]:
    parts = [part.strip() for part in shape[1:-1].split(",")] if shape[1:-1].strip() else []
    try:
        sizes = [-1 if part == "?" else int(part) for part in parts]
    except ValueError:
        sizes = [-2]
    if min(sizes, default=0) < -1:
        raise UsageError(
            f"--inputs: the shape {shape} of '{name}' must be a list of sizes, with -1 for any size"
        )
    return sizes

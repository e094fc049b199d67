"""The options of `opsetta convert` and `opsetta quantize` for sizes and names, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .named_values import parse_sizes, parse_values

InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="NAME=SIZE,SIZE,…",
        help="The shape of an input: images=1,3,224,224, with names for dynamic sizes. May be repeated.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="The size of a named dimension. May be repeated."),
]
Dynamic = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Let the leading dimension of the inputs vary, under this name. onnxruntime checks the result.",
    ),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="A new name of an input or output. May be repeated."),
]


def interface_arguments(
    input_shapes: Sequence[str] | None,
    dims: Sequence[str] | None,
    dynamic: str = "",
    rename: Sequence[str] | None = None,
    standard: bool = False,
) -> dict[str, Any]:
    """The arguments of `OnnxModel.lower` that only ONNX files have; none for options that are not used.

    Raises:
        UsageError: an option has another form.
    """
    shapes = {
        name: [int(size) if size.isdecimal() else size for size in text.replace(" ", "").split(",") if size]
        for name, text in parse_values(input_shapes, "--input-shape", "NAME=SIZE,SIZE,…").items()
    }
    arguments = {
        "shapes": shapes,
        "dims": parse_sizes(dims),
        "dynamic": dynamic,
        "rename": parse_values(rename, "--rename", "OLD=NEW"),
        "standard": standard,
    }
    return {name: value for name, value in arguments.items() if value}

"""The options of `opsetta convert` for its files and checks."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

Source = Annotated[
    pathlib.Path,
    typer.Argument(
        metavar="MODEL",
        help="The file to convert: ONNX, a source file, a Caffe2 net, a TensorFlow GraphDef, MetaGraph "
        "or SavedModel folder.",
    ),
]
Destination = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The file to write; - is standard output. By default NAME.opsetN.onnx beside the model.",
    ),
]
Links = Annotated[
    bool,
    typer.Option("--allow-links", help="Follow links of external data out of the model's folder."),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Write the file also if the target is known to refuse it or to compute it wrongly, and over "
        "the model itself.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Compare with the ONNX file in onnxruntime on random inputs first; write nothing where they "
        "differ.",
    ),
]
Optimize = Annotated[
    str | None,
    typer.Option(
        help="How far to optimize the graph: none, basic or full, the default. By default, an ONNX file that "
        "already has the opset is copied unchanged."
    ),
]
Standard = Annotated[
    bool,
    typer.Option(
        "--standard",
        help="Write the operators of onnxruntime's own domain (com.microsoft) as operators of ONNX; a target "
        "that lacks the domain implies it.",
    ),
]

"""Arguments and options of `export`, some of which `verify` and others have too."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any

import typer

from ....registration.opsets import OPSET_RANGE

_FACTORY: Any = typer.Argument(
    metavar="PATH.py:FUNCTION | MODEL.pt",
    help="A function without arguments that returns (model, args), (model, args, kwargs), or a dict with "
    "these keys and options of opsetta.export, such as dynamic_shapes; or a file that torch.jit.save wrote, "
    "with an --input for each of its inputs.",
)
Factory = Annotated[str, _FACTORY]
OptionalFactory = Annotated[str | None, _FACTORY]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SPEC",
        help="An input of a TorchScript file, in order: float32[batch,3,224,224], int64[batch,seq=7]<100, "
        "a number, true, false or none. A name is a dimension that varies, 2 in the example unless NAME=SIZE "
        "says otherwise. Values are random; whole numbers are 0 or 1, or below the bound after <.",
    ),
]
Trusted = Annotated[
    bool,
    typer.Option(
        "--trusted", help="Lift the bounds on size, for a large file from somebody who is not out to harm."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Symbolics = Annotated[
    list[pathlib.Path] | None,
    typer.Option("--symbolics", metavar="FILE.py", help="A file with symbolic functions to load first."),
]
Rtol = Annotated[float | None, typer.Option(help="Relative tolerance; by element type unless given.")]
Atol = Annotated[float | None, typer.Option(help="Absolute tolerance; by element type unless given.")]
OutputFile = Annotated[
    pathlib.Path, typer.Option("--output", "-o", help="The file to write; - is standard output.")
]
Opset = Annotated[
    int | None, typer.Option(help=f"The opset to write, {OPSET_RANGE}; by default the target's, or 17.")
]
Target = Annotated[
    str | None,
    typer.Option(metavar="NAME | FILE.toml", help="The consumer to write for; `opsetta targets` lists them."),
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Compare with eager PyTorch first; write nothing where they differ."),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(metavar="INPUT:AXIS=NAME", help="A dimension that varies, x:0=batch. May be repeated."),
]
InputNames = Annotated[str | None, typer.Option(help="Names of the inputs, separated by commas.")]
OutputNames = Annotated[str | None, typer.Option(help="Names of the outputs, separated by commas.")]
Mutations = Annotated[
    str | None,
    typer.Option(help="What becomes of buffers that the model writes: error, outputs or drop."),
]
CaptureMethod = Annotated[
    str | None,
    typer.Option(help="How to capture the model: auto, direct, torch.export, strict or trace."),
]
Specialize = Annotated[
    bool,
    typer.Option(
        "--specialize",
        help="Where a decision depends on the values of inputs, take that of the example, and list it.",
    ),
]
ExternalData = Annotated[
    bool | None,
    typer.Option(
        "--external-data/--no-external-data",
        help="Weights into a file beside the model; by size unless given.",
    ),
]
StoredWeights = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="PATH",
        help="The weights of a model that the factory builds without them, on the meta device: a "
        ".safetensors file, a checkpoint of torch.save, an index, or a folder with one of these.",
    ),
]
ReferenceWeights = Annotated[
    bool,
    typer.Option(
        "--reference-weights",
        help="Refer to the files of --weights, which are in the output's folder, and copy nothing.",
    ),
]
Optimize = Annotated[str, typer.Option(help="How far to optimize the graph: none, basic or full.")]

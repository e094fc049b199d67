"""Arguments and options of `export`, some of which `verify` and others have too."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from ....registration.opsets import OPSET_RANGE

_FACTORY: object = typer.Argument(
    metavar="PATH.py:FUNCTION | MODEL.pt | PROGRAM.pt2",
    help="A function without arguments that returns (model, args), (model, args, kwargs), or a dict with "
    "these keys and options of opsetta.export, such as dynamic_shapes; a file that torch.jit.save wrote, "
    "with an --input for each of its inputs; or a file that torch.export.save wrote.",
)
Factory = Annotated[str, _FACTORY]
OptionalFactory = Annotated[str | None, _FACTORY]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SPEC",
        help="An input of a TorchScript file, in order: float32[batch,3,224,224], int64[batch,seq=7]<100, "
        "a number, true, false or none. A name makes a dimension dynamic; its size in the example is 2, or "
        "that of NAME=SIZE. Values are random; integers are 0 or 1, or below the bound after <.",
    ),
]
Trusted = Annotated[
    bool,
    typer.Option("--trusted", help="Lift the bounds on size, for a large file from a trusted source."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Symbolics = Annotated[
    list[pathlib.Path] | None,
    typer.Option("--symbolics", metavar="FILE.py", help="A file with symbolic functions to load first."),
]
Rtol = Annotated[
    float | None, typer.Option(min=0, help="Relative tolerance; the default depends on the element type.")
]
Atol = Annotated[
    float | None, typer.Option(min=0, help="Absolute tolerance; the default depends on the element type.")
]
OutputFile = Annotated[
    pathlib.Path, typer.Option("--output", "-o", help="The file to write; - is standard output.")
]
ChangedFile = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The file to write; - is standard output. By default a new name beside the model.",
    ),
]
Opset = Annotated[
    int | None, typer.Option(help=f"The opset to write, {OPSET_RANGE}; by default the target's, or 17.")
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[@VERSION] | FILE.toml",
        help="The runtime or device that will read the file; `opsetta targets` lists them.",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Write the file also if the target is known to refuse it or to compute it wrongly."
    ),
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Compare with eager PyTorch first; write nothing where they differ."),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        metavar="INPUT:AXIS=NAME",
        help="A dynamic dimension, x:0=batch, or with a range, 'x:1=time<=128'. May be repeated.",
    ),
]
InputNames = Annotated[str | None, typer.Option(help="Names of the inputs, separated by commas.")]
OutputNames = Annotated[str | None, typer.Option(help="Names of the outputs, separated by commas.")]
Mutations = Annotated[
    str | None,
    typer.Option(help="How to handle buffers that the model writes to: error, outputs, state or drop."),
]
CaptureMethod = Annotated[
    str | None,
    typer.Option(help="How to capture the model: auto, direct, torch.export, strict or trace."),
]
Specialize = Annotated[
    bool,
    typer.Option(
        "--specialize",
        help="Fix decisions that depend on the values of inputs as in the example, and list them.",
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="After a failed capture, try other captures of the model, and say which of them work.",
    ),
]
Narrow = Annotated[
    bool,
    typer.Option(
        "--narrow",
        help="Accept a model that is valid for some sizes of a dynamic dimension only, and say for which.",
    ),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard",
        help="Write the sizes for which the model is valid as checks into the file, for all runtimes.",
    ),
]
ExternalData = Annotated[
    bool | None,
    typer.Option(
        "--external-data/--no-external-data",
        help="Write weights into a file beside the model; by default only above 2 GB.",
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
        help="Refer to the files of --weights, which must be in the output's folder, and copy no weights.",
    ),
]
Optimize = Annotated[str, typer.Option(help="How far to optimize the graph: none, basic or full.")]

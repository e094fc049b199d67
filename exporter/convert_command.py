"""The command `opsetta convert`."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Annotated

import typer

from ..registration import DEFAULT_OPSET, ModelFileError
from ..registration.opsets import check_opset


def convert(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to convert.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The file to write.")],
    opset: Annotated[int, typer.Option(help="The opset to write, 7 to 26.")] = DEFAULT_OPSET,
    external_data: Annotated[
        bool | None,
        typer.Option(
            "--external-data/--no-external-data",
            help="Weights into a file beside the model; by size unless given.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write an ONNX file, or a source file, at another opset."""
    from .loading import load

    check_opset(opset)
    if output.is_dir() or not output.parent.is_dir():
        what = "it is a folder" if output.is_dir() else f"there is no folder '{output.parent}'"
        raise ModelFileError(f"'{output}' cannot be written: {what}")
    begin = time.perf_counter()
    source = load(model)
    converted = source.lower(opset)
    converted.save(output, external_data=external_data)
    found = {
        "file": str(output),
        "opset": opset,
        "bytes": output.stat().st_size,
        "nodes": converted.model.graph.num_nodes(),
        "inputs": converted.input_names,
        "outputs": converted.output_names,
        "seconds": round(time.perf_counter() - begin, 3),
    }
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{output}: opset {opset}, {found['nodes']} nodes, {found['bytes']} bytes")

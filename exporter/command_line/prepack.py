"""The command `opsetta prepack`."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer

from ...registration import DEFAULT_OPSET
from ...registration.opsets import check_opset
from .convert import Trusted
from .output import say


def prepack(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to pack.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    opset: Annotated[
        int | None, typer.Option(help="The opset of the portable model, 7 to 26; by default the file's.")
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            help="portable, or native: convolutions too, for processors with the same instructions only."
        ),
    ] = "portable",
    trusted: Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a folder with a model's weights packed for this machine, and the portable model beside them."""
    from ..deployment.prepack.manifest import MANIFEST, PACKED, Manifest
    from ..loading import load
    from ..onnx_model import OnnxModel

    if opset is not None:
        check_opset(opset)
    source = load(model, trusted=trusted)
    if opset is None and isinstance(source, OnnxModel):
        source.save(output, prepack=True, layout=layout)
    else:
        source.lower(DEFAULT_OPSET if opset is None else opset).save(output, prepack=True, layout=layout)
    manifest = Manifest.read(output)
    size = sum(blob.size for blob in manifest.blobs)
    if as_json:
        summary = {
            "folder": str(output),
            "layout": manifest.layout,
            "packed_weights": len(manifest.blobs),
            "packed_bytes": size,
            "files": {record.name: record.size for record in (*manifest.plain, *manifest.packed)},
        }
        print(json.dumps(summary, indent=2))
        return
    say(f"{output / PACKED}: {len(manifest.blobs)} packed weights, {size} bytes; valid as {MANIFEST} says")

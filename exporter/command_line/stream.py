"""The command `opsetta stream`."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer

from ...registration import DEFAULT_OPSET
from ...registration.opsets import check_opset
from ..deployment.memory_amounts import memory_amount
from .convert import Trusted
from .output import say


def stream(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to stream.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    opset: Annotated[
        int | None, typer.Option(help="The opset of the model, 7 to 26; by default the file's.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Show the segments for this memory of weights and activations, such as 200MB."),
    ] = None,
    lookahead: Annotated[
        int | None, typer.Option(help="Show the segments with this many read ahead of the one that runs.")
    ] = None,
    trusted: Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a folder from which opsetta.StreamingSession runs a model with few weights in memory."""
    from ..deployment.streaming import StreamingSession, save_streaming
    from ..deployment.streaming.folder import INDEX, Index
    from ..loading import load
    from ..onnx_model import OnnxModel

    if opset is not None:
        check_opset(opset)
    if budget is not None:
        memory_amount(budget)
    source = load(model, trusted=trusted)
    if opset is None and isinstance(source, OnnxModel):
        save_streaming(source, output)
    else:
        save_streaming(source.lower(DEFAULT_OPSET if opset is None else opset), output)
    index = Index.read(output)
    size = sum(weight.size for weight in index.weights)
    found = {"folder": str(output), "weights": len(index.weights), "weight_bytes": size}
    text = f"{output / INDEX}: {len(index.weights)} weights, {size} bytes"
    if budget is not None or lookahead is not None:
        with StreamingSession(
            output, budget=budget, lookahead=lookahead, verify="size", trusted=trusted
        ) as session:
            found |= {
                "segments": len(session.segments),
                "lookahead": session.lookahead,
                "largest_segment": session.largest_segment,
                "activations": session.activations,
            }
        text += (
            f"; {found['segments']} segments of {found['largest_segment']} bytes at most, lookahead "
            f"{found['lookahead']}, {found['activations']} bytes of activations"
        )
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        say(text)

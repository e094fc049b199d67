"""The command `opsetta realize`."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from ..options import export as options
from ..terminal.output import Output
from ..terminal.tables import count_text
from .editing import load_as_onnx, output_path


def realize(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to rewrite.")],
    output: options.OutputFile,
    passes: Annotated[
        list[str],
        typer.Option(
            "--pass",
            metavar="NAME[=VALUE]",
            help="A pass; may be repeated, and passes run in this order. See docs/realizers.md.",
        ),
    ],
    external_data: options.ExternalData = None,
    trusted: options.Trusted = False,
    as_json: options.Json = False,
) -> None:
    """Rewrite a model for an engine that supports only a part of ONNX."""
    from ...realizing import realize as rewrite

    written = Output(output_path(model, output, "realized"))
    rewritten = rewrite(load_as_onnx(model, trusted), passes)
    written.save(rewritten, external_data)
    node_count = rewritten.model.graph.num_nodes()
    nodes = count_text(node_count, "node")
    facts = {
        "file": str(output),
        "passes": list(passes),
        "nodes": node_count,
        "inputs": rewritten.input_names,
        "outputs": rewritten.output_names,
        "bytes": written.size,
    }
    written.report(facts, f"{output}: {nodes}, {facts['bytes']} bytes", as_json=as_json)

"""The command `opsetta realize`."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from ..options.export import Trusted
from ..terminal.output import Output


def realize(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to rewrite.")],
    output: Annotated[
        pathlib.Path, typer.Option("--output", "-o", help="The file to write; - is standard output.")
    ],
    passes: Annotated[
        list[str],
        typer.Option(
            "--pass", metavar="NAME[=VALUE]", help="A pass; may be repeated, in order. See docs/realizers.md."
        ),
    ],
    external_data: Annotated[
        bool | None,
        typer.Option(
            "--external-data/--no-external-data",
            help="Weights into a file beside the model; by size unless given.",
        ),
    ] = None,
    trusted: Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Rewrite a model into what an engine takes: unrolled, cut, folded, renamed, of other types."""
    from ...load_model import load
    from ...onnx_model import OnnxModel
    from ...realizing import realize as rewrite

    written = Output(output)
    source = load(model, trusted=trusted)
    rewritten = rewrite(source if isinstance(source, OnnxModel) else source.lower(), passes)
    written.save(rewritten, external_data)
    facts = {
        "file": str(output),
        "passes": list(passes),
        "nodes": rewritten.model.graph.num_nodes(),
        "inputs": rewritten.input_names,
        "outputs": rewritten.output_names,
        "bytes": written.size,
    }
    written.report(facts, f"{output}: {facts['nodes']} nodes, {facts['bytes']} bytes", as_json=as_json)

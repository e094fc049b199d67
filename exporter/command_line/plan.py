"""The command `opsetta plan`."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from ...registration import UsageError
from ..deployment.memory_amounts import memory_amount
from .convert import Trusted
from .output import say


def plan(
    model: Annotated[pathlib.Path, typer.Argument(metavar="MODEL.onnx", help="The file to plan.")],
    output: Annotated[pathlib.Path, typer.Option("--output", "-o", help="The folder to write.")],
    mode: Annotated[str, typer.Option(help="inference, or train for a training graph.")] = "inference",
    budget: Annotated[
        str | None, typer.Option(help="The memory for values and weights, such as 200MB or 64MiB.")
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="The size of a dimension; may be repeated.")
    ] = None,
    alignment: Annotated[int, typer.Option(help="What offsets are multiples of, in bytes.")] = 64,
    html: Annotated[
        bool, typer.Option("--html", help="Write plan.html, a page with the picture, too.")
    ] = False,
    trusted: Trusted = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan.json.")] = False,
) -> None:
    """Plan execution order, lifetimes and memory offsets of a model for an engine."""
    from ..deployment.plan.picture import summary
    from ..loading import load
    from ..onnx_model import OnnxModel

    dimensions = dict(_dimension(text) for text in dim or ())
    limit = None if budget is None else memory_amount(budget)
    source = load(model, trusted=trusted)
    found = source if isinstance(source, OnnxModel) else source.lower()
    planned = found.plan(mode=mode, budget=limit, dimensions=dimensions, alignment=alignment)
    planned.save(output, html=html)
    if as_json:
        print(planned.to_json())
    else:
        say(f"{output}: {summary(planned)}")
    if planned.fits is False:
        raise typer.Exit(1)


def _dimension(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal():
        raise UsageError(f"--dim takes NAME=SIZE, not '{text}'")
    return name, int(size)

"""The commands of `opsetta` as one application of typer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from .commands.compare import compare
from .commands.convert import convert
from .commands.deployment import build, plan, plan_tflite, prepack, stream
from .commands.editing import edit, extract, join
from .commands.export import export, verify
from .commands.freeze import freeze
from .commands.generation import generate
from .commands.graph_tools import diff, reduce, simplify
from .commands.inspection import check, info, ops
from .commands.quantize import quantize
from .commands.realize import realize
from .commands.report import report
from .commands.sweep import sweep
from .commands.targets import targets
from .commands.weights import weights

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich help would parse [batch,3] as markup, and truncates long words in tables.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: tuple[Callable[..., None], ...] = (
    export,
    convert,
    verify,
    check,
    compare,
    info,
    ops,
    targets,
    weights,
    report,
    sweep,
    freeze,
    quantize,
    realize,
    extract,
    join,
    edit,
    simplify,
    diff,
    reduce,
    plan,
    plan_tflite,
    prepack,
    build,
    stream,
    generate,
)
for _command in _COMMANDS:
    app.command()(_command)


def _version(is_requested: bool) -> None:
    if is_requested:
        from ... import __version__

        print(f"opsetta {__version__}")
        raise typer.Exit


@app.callback()
def opsetta(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Any model, any opset: ONNX at exactly the opset that you ask for."""

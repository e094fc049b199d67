"""The commands of `opsetta` as one application of typer."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated

import typer

from .plain_values import PlainCommand, PlainGroup

_COMMANDS = {
    "export": ("export", "Export a model to ONNX at exactly one opset."),
    "convert": ("convert", "Write a model file as ONNX at exactly one opset."),
    "verify": ("export", "Compare a model file in onnxruntime with eager PyTorch."),
    "check": ("inspection", "Check that nodes are valid, and which targets support a file."),
    "compare": ("compare", "Compare two files: operators, weights, latency and results."),
    "info": ("inspection", "Show opsets, inputs, outputs, operators and weights of a file."),
    "ops": ("inspection", "List the operators that each opset supports."),
    "targets": ("targets", "List the runtimes and devices that --target names."),
    "weights": ("weights", "List the weights of a model, or write them to a file."),
    "report": ("report", "Write a page about an export, also about one that fails."),
    "sweep": ("sweep", "Export and run many models at many opsets."),
    "freeze": ("freeze", "Write a TensorFlow graph with its variables as constants."),
    "quantize": ("quantize", "Quantize weights and activations with calibration data."),
    "realize": ("realize", "Rewrite a model for an engine that supports only a part of ONNX."),
    "extract": ("editing", "Write the part of a model between given inputs and outputs."),
    "join": ("editing", "Write two models as one."),
    "edit": ("editing", "Remove outputs of a model, or fix inputs at constants."),
    "simplify": ("graph_tools", "Fold constants, and remove what no output needs."),
    "diff": ("graph_tools", "Show what differs between two files, node by node."),
    "reduce": ("graph_tools", "Find a small part of a model for which a command still fails."),
    "plan": ("deployment", "Plan execution order, lifetimes and memory offsets."),
    "plan-tflite": ("deployment", "Write the memory plan of TensorFlow Lite Micro into a .tflite file."),
    "prepack": ("deployment", "Pack the weights of a model for onnxruntime on this machine."),
    "build": ("deployment", "Write a C99 program that runs a model on a device."),
    "stream": ("deployment", "Write a folder that runs with few weights in memory."),
    "generate": ("generation", "Generate text with an exported model, on onnxruntime."),
}
"""The module in `commands` with the function of each command, and the first line of its docstring, in the
order of the help page."""


def make_application(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The application that parses these arguments; by default one that parses any.

    typer reads the annotations of every command, which takes longer than a small file. So a call of a command
    gets only this command, and the help page gets commands without parameters. Shells complete words by a
    call without arguments.
    """
    application = typer.Typer(
        cls=PlainGroup,
        callback=_describe,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Rich help would parse [batch,3] as markup, and truncates long words in tables.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if arguments is not None and list(arguments) in (["-h"], ["--help"], ["--version"]):
        for name, (_, summary) in _COMMANDS.items():
            application.command(name, help=summary)(lambda: None)
        return application
    for name in arguments[:1] if arguments and arguments[0] in _COMMANDS else _COMMANDS:
        module = importlib.import_module(f"{__package__}.commands.{_COMMANDS[name][0]}")
        application.command(name, cls=PlainCommand)(getattr(module, name.replace("-", "_")))
    return application


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from ... import __version__

        print(f"opsetta {__version__}")
        raise typer.Exit


def _describe(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Any model, any opset: ONNX at exactly the opset that you ask for."""

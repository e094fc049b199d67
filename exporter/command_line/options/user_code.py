"""Runs the user's code for a command: loads a model from it, and isolates its output and state."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from ....registration import UsageError

if TYPE_CHECKING:
    from ...factories import Example


def load(factory: str, symbolics: list[pathlib.Path] | None, inputs: list[str] | None) -> Example:
    """Load the model and the example arguments from a factory or a TorchScript file.

    Raises:
        OpsettaError: the user's code fails, or gives something else.
    """
    import torch

    from ...factories import load_file
    from .factory import load_example

    # A model with random weights gets the same weights in each run of the command.
    torch.manual_seed(0)
    for path in symbolics or []:
        load_file(str(path))
    return load_example(factory, inputs or ())


def capture_options(
    example: Example, dynamic: list[str] | None, source_of_axes: str, **options: object
) -> dict[str, Any]:
    """The capture options of `export`: those of the factory, and those of the command.

    Args:
        dynamic: dynamic dimensions, `INPUT:AXIS=NAME`.
        source_of_axes: the other source of dynamic dimensions, for the message.
        options: others, None for what is not given.

    Raises:
        UsageError: dynamic dimensions are given twice.
    """
    command_options = {**options, "dynamic_axes": _dynamic_axes(dynamic)}
    capture_arguments = example.options | {
        name: value for name, value in command_options.items() if value is not None
    }
    if dynamic and capture_arguments.pop("dynamic_shapes", None) is not None:
        raise UsageError(f"--dynamic: {source_of_axes} dynamic dimensions already")
    return capture_arguments


def torch_boundary(stage: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Limit changes that the factory makes to torch's state to this command."""
    stage("loading the model")
    from ...torch_boundary.boundary import boundary

    return boundary()


def quiet_stdout() -> contextlib.AbstractContextManager[object]:
    """Redirect the output of the user's code to stderr, because stdout is for the result."""
    return contextlib.redirect_stdout(sys.stderr)


def names(text: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _dynamic_axes(entries: list[str] | None) -> dict[str, dict[int, str]] | None:
    axes: dict[str, dict[int, str]] = {}
    for entry in entries or []:
        input_and_axis, _, dimension = entry.partition("=")
        name, _, axis = input_and_axis.rpartition(":")
        if not name or not dimension or not axis.lstrip("-").isdigit():
            raise typer.BadParameter(f"'{entry}' is not of the form INPUT:AXIS=NAME", param_hint="--dynamic")
        axes.setdefault(name, {})[int(axis)] = dimension
    return axes or None

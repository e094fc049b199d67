"""Loads models for the command line: from a factory, `PATH.py:function`, or a file of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....registration import OpsettaError, UsageError
from ...factories import Example, example_of, load_file
from ..terminal.tables import count_text

if TYPE_CHECKING:
    import torch


def load_example(reference: str, inputs: Sequence[str] = ()) -> Example:
    """Call the factory, or load the file of a model, that `reference` names.

    Args:
        reference: `PATH.py:function`, or the path of a file of `torch.jit.save` or `torch.export.save`. The
            function takes no arguments and returns `(model, args)`, `(model, args, kwargs)`, or a dict with
            these keys and options of `export`. The model may be such a path.
        inputs: descriptions of a TorchScript file's inputs, for `example_inputs`.

    Raises:
        UsageError: the reference or the description of an input has another form.
        OpsettaError: the file, the function or its result is invalid.
    """
    path, separator, name = reference.rpartition(":")
    if not reference.endswith(".py") and not path.endswith(".py"):
        return _example_of_file(reference, inputs)
    if not separator or not path or not name:
        raise UsageError(f"'{reference}' does not name a factory: write PATH.py:function")
    if inputs:
        raise UsageError(f"--input is for TorchScript files; the factory '{reference}' makes its arguments")
    factory = getattr(load_file(path), name, None)
    if not callable(factory):
        raise OpsettaError(f"'{path}' has no function '{name}'")
    return example_of(reference, factory)


def _example_of_file(path: str, inputs: Sequence[str]) -> Example:
    import torch

    from ...capture import torchscript
    from .example_inputs import example_inputs

    model = torchscript.load(path)
    if not isinstance(model, torch.jit.ScriptModule):
        return _example_of_program(path, model, inputs)
    # The first argument is `self`.
    formal = model.forward.schema.arguments[1:]  # type: ignore[attr-defined]
    needed = sum(not argument.has_default_value() for argument in formal)
    if not needed <= len(inputs) <= len(formal):
        listed = ", ".join(f"{argument.name}: {argument.type}" for argument in formal)
        raise UsageError(
            f"'{path}' has {count_text(len(formal), 'input')} ({listed}), but there are {len(inputs)} "
            "--input options: pass one for each input in order, such as --input 'float32[batch,3,224,224]'"
        )
    args, shapes = example_inputs(inputs)
    return Example(model, args, {}, {"dynamic_shapes": shapes} if any(shapes) else {})


def _example_of_program(path: str, program: torch.export.ExportedProgram, inputs: Sequence[str]) -> Example:
    from .example_inputs import example_inputs

    if inputs:
        args, shapes = example_inputs(inputs)
        if any(shapes):
            raise UsageError(f"--input: '{path}' has its own dynamic dimensions; give sizes without names")
        return Example(program, args, {}, {})
    if program.example_inputs is None:
        raise UsageError(f"'{path}' has no example inputs: pass an --input for each input")
    args, kwargs = program.example_inputs
    return Example(program, tuple(args), dict(kwargs), {})

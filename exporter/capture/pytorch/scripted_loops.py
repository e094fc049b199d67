"""Captures a model whose loops direct capture refuses: TorchScript's compiler keeps them as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ....passes import remove_inplace
from ....passes.faults import raise_fault
from ....registration import CaptureError, GraphError
from ...captured_graph.capture import Capture
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensor
from ...torch_boundary.process.silence import quiet
from ...torch_boundary.state.model_state import Preserved
from .. import torchscript
from ..capture_options import CaptureOptions
from .alternatives import agrees


def capture_scripted(
    model: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
) -> Capture:
    """Compile a model or function with `torch.jit.script`, and capture the program.

    The program must agree with the model on the example.

    Raises:
        CaptureError: TorchScript does not support the model's code, or a source graph the program.
    """
    if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, dict(kwargs)))):
        raise CaptureError("TorchScript needs example arguments with data")
    preserved = Preserved(model, args, kwargs)
    with boundary(quiet(), preserved):
        try:
            program: Any = torch.jit.script(model)
        except Exception as error:
            raise_fault(error, "when it compiled the model to TorchScript")
            # The first line of some errors is empty.
            words = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
            raise CaptureError(f"torch.jit.script refuses the model: {words}") from error
    if torchscript.multiplies_numbers(program):
        raise CaptureError("a loop multiplies an integer, which TorchScript gives 64 bits only")
    capture = torchscript.capture(program, args, kwargs, options)
    try:
        # The error of direct capture names the line; that of a later pass does not.
        remove_inplace(capture.source.clone(), mutations="outputs")
    except GraphError as error:
        raise CaptureError(str(error)) from error
    with boundary(quiet(), torch.no_grad(), preserved):
        if agrees(model, program, (args, kwargs)) is False:
            raise CaptureError("torch.jit.script(model) gives other results than the model")
    return capture

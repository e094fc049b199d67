"""Verifies any model file against eager PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch

from ....registration import OpsettaError
from ...files.reading import bounds_of, read_model
from ...torch_boundary.boundary import boundary
from ...torch_boundary.containers import pytree
from ...torch_boundary.containers.structures import register_structures
from .. import calls
from ..model_inputs import inputs_of_message
from ..runner import Runner
from .verification import VerificationReport


def verify_file(
    path: str | os.PathLike[str],
    model: Callable[..., object] | torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    trusted: bool = False,
) -> VerificationReport:
    """Run a file in onnxruntime and its model in PyTorch, and compare the results.

    Keyword arguments are matched to inputs by name if all of them are tensors with names of inputs; else all
    tensors are matched in order. The file's outputs must be the flattened result, in order. Further outputs
    (new values of buffers) are not compared.

    Args:
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: the file cannot be read.
        InferenceError: onnxruntime refuses the file or the inputs.
        DimensionError: the model is not valid for a size, by the file's metadata.
        VerificationError: an output is outside tolerance.
        OpsettaError: inputs or outputs do not correspond.
    """
    inputs = inputs_of_message(read_model(path, bounds_of(trusted)))
    register_structures(args, dict(kwargs))
    runner = Runner.of_file(path, inputs)
    feed = inputs.feed(_values_by_name(inputs.names, args, kwargs))
    expected = eager_results(model, args, kwargs)
    count = len(runner.output_names)
    if count < len(expected):
        raise OpsettaError(f"'{path}' has {count} outputs, but the model returns {len(expected)} values")
    return runner.verify(feed, expected, rtol, atol, has_further_outputs=True)


def eager_results(
    model: Callable[..., object] | torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> list[object]:
    """Run a PyTorch model on copies of its arguments, and return the flattened result without None.

    Raises:
        OpsettaError: the model itself fails on these arguments.
    """
    # An ExportedProgram is not callable.
    module = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    copied_args, copied_kwargs = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, (args, dict(kwargs))
    )
    with boundary(), calls.blame_model():
        result, _ = calls.call_model(module, (), copied_args, copied_kwargs)
    # An ONNX graph has no output for None.
    return [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]


def _values_by_name(
    names: list[str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Match the leaves of a call to the file's input names; see `verify_file`."""
    by_name = {name: value for name, value in kwargs.items() if name in names}
    if len(by_name) == len(kwargs) and all(isinstance(value, torch.Tensor) for value in by_name.values()):
        unbound_names = [name for name in names if name not in by_name]
        leaves = pytree.tree_leaves(args)
    else:
        by_name, unbound_names, leaves = {}, names, pytree.tree_leaves((args, dict(kwargs)))
    tensors: list[object] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(tensors) != len(unbound_names):
        # Python numbers may be inputs too, if they were captured as dynamic.
        tensors = [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, int, float))]
    if len(tensors) != len(unbound_names):
        raise OpsettaError(
            f"the file has {len(names)} inputs ({', '.join(names)}), but the example arguments have "
            f"{len(tensors) + len(by_name)} tensors and numbers"
        )
    return by_name | dict(zip(unbound_names, tensors, strict=True))

"""Captures `associative_scan` as one operator in torch.export.

On CPU torch has only the mode "generic", which runs a tree of `vmap`s of the function over stacks of slices.
Its capture differs for each length and has functorch's primitives. During a capture this mode emits the
operator `higher_order::associative_scan` instead, as the mode "pointwise" does on other devices; the meaning
is the same.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...containers import pytree
from ...process.process_state import replace_attribute

# The package has a function of the same name.
Leaves = Sequence[torch.Tensor]
_torch: Any = importlib.import_module("torch._higher_order_ops.associative_scan")


@contextlib.contextmanager
def call_operator(*, strict: bool) -> Iterator[None]:
    """Make `associative_scan` call its operator within the context, also in the mode "generic".

    Args:
        strict: whether TorchDynamo traces the model; it cannot trace into a `vmap`, so nothing is patched.
    """
    if strict:
        yield
        return
    original = _torch.generic_associative_scan

    def generic_associative_scan(
        operator: functools.partial[Leaves],
        leaves: Leaves,
        dim: int = 0,
        additional_inputs: Sequence[object] = (),
    ) -> Leaves:
        function = _slice_function(operator)
        if function is None or dim != 0 or additional_inputs:
            results: Leaves = original(operator, leaves, dim, additional_inputs)
            return results
        # Only the mode "pointwise" on other devices needs a function of single elements.
        checks = importlib.import_module("torch._inductor.utils")
        with replace_attribute(checks, "is_pointwise_use", lambda *use: True):
            return pytree.tree_leaves(_torch._maybe_compile_and_run_fn(_run, function, leaves))

    with replace_attribute(_torch, "generic_associative_scan", generic_associative_scan):
        yield


def _run(function: Callable[..., Leaves], leaves: Leaves) -> Leaves:
    results: Leaves = _torch.associative_scan_op(function, leaves, additional_inputs=())
    return results


def _slice_function(operator: functools.partial[Leaves]) -> functools.partial[Leaves] | None:
    """Return the user's function of slices, which torch has wrapped by `vmap`; None if it is not found."""
    stacked = getattr(operator, "keywords", {}).get("combine_fn")
    if not inspect.isfunction(stacked):
        return None
    function = inspect.getclosurevars(stacked).nonlocals.get("func")
    if function is None:
        return None
    return functools.partial(operator.func, **{**operator.keywords, "combine_fn": function})

"""Replaces functions of torch that a trace would record as constants, or not at all."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator

import torch

from .....registration import CaptureError
from ...containers import pytree
from ...process.process_state import replace_attribute
from .scripted_calls import keep_sizes

_UNSEEN = ("apply_", "map_", "map2_")
"""Methods of tensors that run a function on each element, which a trace does not record."""


@contextlib.contextmanager
def record_traced_calls() -> Iterator[None]:
    """Record `torch.tensor` and scripted functions of sizes, and refuse methods that a trace leaves out."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(keep_sizes())
        stack.enter_context(replace_attribute(torch, "tensor", functools.partial(_stack_sizes, torch.tensor)))
        for name in _UNSEEN:
            stack.enter_context(
                replace_attribute(torch.Tensor, name, functools.partialmethod(_refuse_method, name))
            )
        yield


def _refuse_method(tensor: torch.Tensor, name: str, *args: object) -> None:
    raise CaptureError(f"Tensor.{name} runs a Python function on each element, which has no operator")


def _stack_sizes(torch_tensor: Callable[..., torch.Tensor], data: object, **options: object) -> torch.Tensor:
    """Replace `torch.tensor` of sizes, which are tensors in a trace, by `stack`; it would be a constant.

    Args:
        torch_tensor: the original `torch.tensor`.
    """
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(data)):
        return torch_tensor(data, **options)
    with warnings.catch_warnings():
        # Only its element type and device are used.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        constant = torch_tensor(data, **options)

    def stack_members(item: object) -> torch.Tensor:
        if isinstance(item, (list, tuple)):
            return torch.stack([stack_members(member) for member in item])
        return (item.clone() if isinstance(item, torch.Tensor) else torch_tensor(item)).to(constant.dtype)

    return stack_members(data).to(constant.device)

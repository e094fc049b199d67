"""Gradients that a model computes in its forward, of which a recording shows the operators."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel

from ....registration import CaptureError
from ..containers import pytree
from ..fake_tensors import storage_of

OF_GRADIENTS = frozenset(
    {torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward, torch.Tensor.register_hook}
)
"""Functions that compute gradients, or take part in it."""


class Differentiates(BaseException):
    """The model computes gradients; a model that handles exceptions must not handle this one."""


class OtherGradients(CaptureError):
    """The model computes gradients by functions that no capture can follow."""


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Autograd, with ATen's own recurrent layers, and attention whose operators have gradients themselves."""
    with (
        torch.enable_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
    ):
        yield


def hides_operators(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any] | None) -> bool:
    """Whether autograd would keep results of operators that this one runs, and that no recording sees."""
    if not (torch.is_grad_enabled() and _is_made_of_others(func)):
        return False
    given = pytree.tree_leaves((args, kwargs or {}))
    return any(isinstance(item, torch.Tensor) and item.requires_grad for item in given)


@functools.cache
def _is_made_of_others(func: OpOverload) -> bool:
    """Whether an operator runs others; of those that may return a view, autograd keeps sizes alone."""
    key = DispatchKey.CompositeImplicitAutograd
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    return has_kernel and all(each.alias_info is None for each in func._schema.returns)


def check_level(tensor: torch.Tensor) -> None:
    """Refuse a tensor of `torch.func`, whose gradients are not those of autograd.

    Raises:
        OtherGradients: `torch.func.grad` or a similar function made it.
    """
    if torch._C._functorch.is_gradtrackingtensor(tensor):
        raise OtherGradients(
            "gradients by torch.func (grad, vjp, jacrev, jacfwd, hessian) cannot be captured: compute them "
            "with torch.autograd.grad"
        )


def distances(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: Any = None) -> torch.Tensor:
    """`torch.cdist` by operators whose gradients are operators too."""
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


class SavedResults:
    """The results of operators under autograd, which gives those that it saved as other tensors."""

    def __init__(self) -> None:
        self._kept: dict[int | None, list[tuple[torch.Tensor, torch.fx.Node]]] = {}

    def keep(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Note the node of a result."""
        self._kept.setdefault(storage_of(tensor), []).append((tensor, node))

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """The node of the result with the memory and the layout of a tensor."""
        for kept, node in self._kept.get(storage_of(tensor), ()):
            if (
                kept.dtype == tensor.dtype
                and kept.shape == tensor.shape
                and kept.stride() == tensor.stride()
                and kept.storage_offset() == tensor.storage_offset()
            ):
                return node
        return None

"""Records the operators of gradients that a model computes in its forward."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ....registration import CaptureError
from ..containers import pytree
from ..dispatch import DispatchKey
from ..fake_tensors import TorchDispatchMode, storage_of
from ..operators.overloads import Args, Kwargs, OpOverload

OF_GRADIENTS = frozenset(
    {torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward, torch.Tensor.register_hook}
)
"""Functions that compute gradients, or register hooks on them."""
_FORWARD = "_make_dual"
"""The function by which torch.func and torch.autograd.forward_ad begin to differentiate in forward mode."""


class Differentiates(BaseException):
    """The model computes gradients; a model that handles exceptions must not handle this one."""


class OtherGradients(CaptureError):
    """The model computes gradients by functions that no capture can follow."""


@contextlib.contextmanager
def enable_gradients() -> Iterator[None]:
    """Enable autograd, ATen's recurrent layers instead of oneDNN's, and attention by matrix products."""
    with (
        torch.enable_grad(),
        # oneDNN's recurrent layers have a backward of their own, which ONNX has no operator for.
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
    ):
        yield


def hides_operators(func: OpOverload, args: Sequence[object], kwargs: Kwargs | None) -> bool:
    """Whether autograd may save results of the operators inside this one, which a recording would miss."""
    if not (torch.is_grad_enabled() and _is_composite(func)):
        return False
    leaves = pytree.tree_leaves((args, kwargs or {}))
    return any(isinstance(item, torch.Tensor) and item.requires_grad for item in leaves)


@functools.cache
def _is_composite(func: OpOverload) -> bool:
    """Whether an operator runs others and returns no view; for views autograd saves only sizes."""
    key = DispatchKey.CompositeImplicitAutograd
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    return has_kernel and all(result.alias_info is None for result in func._schema.returns)


def check_level(tensor: torch.Tensor) -> None:
    """Refuse a tensor of `torch.func`, whose gradients are not those of autograd.

    Raises:
        OtherGradients: `torch.func.grad` or a similar function made it.
    """
    if torch._C._functorch.is_gradtrackingtensor(tensor):
        raise OtherGradients(_refusal("torch.func (grad, vjp, jacrev, hessian)"))


def check_function(func: object) -> None:
    """Refuse a function that differentiates in forward mode.

    Raises:
        OtherGradients: it does.
    """
    if getattr(func, "__name__", "") == _FORWARD:
        raise OtherGradients(_refusal("forward mode (linearize, make_dual)"))


def _refusal(method: str) -> str:
    return f"gradients by {method} cannot be captured: compute them with torch.autograd.grad"


def parts_of(func: OpOverload) -> Callable[..., object]:
    """Return a function that runs a composite operator's parts, so that a recording sees their gradients."""
    return _PARTS.get(func, func.decompose)


def _distances(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: object = None
) -> torch.Tensor:
    result: torch.Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return result


def _triangular(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the diagonal of the upper triangular factor, and the sign (1 or -1) of the row permutation."""
    factors, pivots = torch.linalg.lu_factor(matrix)
    # LAPACK's pivots count from 1; a pivot that differs from its row number exchanges two rows.
    rows = torch.arange(1, matrix.shape[-1] + 1, dtype=pivots.dtype)
    return factors.diagonal(dim1=-2, dim2=-1), 1 - 2 * ((pivots != rows).sum(-1) % 2).to(matrix.dtype)


def _determinant(matrix: torch.Tensor) -> torch.Tensor:
    diagonal, sign = _triangular(matrix)
    return sign * diagonal.prod(-1)


def _signed_logarithm(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    diagonal, sign = _triangular(matrix)
    return sign * diagonal.sign().prod(-1), diagonal.abs().log().sum(-1)


def _logarithm(matrix: torch.Tensor) -> torch.Tensor:
    sign, logarithm = _signed_logarithm(matrix)
    # A negative determinant has no real logarithm.
    return torch.where(sign < 0, torch.nan, logarithm)


_ATEN = torch.ops.aten
_PARTS: dict[OpOverload, Callable[..., object]] = {
    _ATEN.cdist.default: _distances,
    _ATEN.linalg_det.default: _determinant,
    _ATEN.linalg_slogdet.default: _signed_logarithm,
    _ATEN.logdet.default: _logarithm,
}
"""Operators whose gradients need results of kernels that ONNX does not have."""


@dataclasses.dataclass(eq=False)
class InnerCall:
    """A call of an operator within another operator, whose result autograd may save.

    Attributes:
        result: the tensor that it returned.
        args: the arguments, (positional, by name); each tensor is replaced by its node or its `InnerCall`.
        before: the node of the outer operator.
    """

    func: OpOverload
    result: torch.Tensor
    args: tuple[tuple[object, ...], dict[str, object]]
    before: torch.fx.Node | None = None


class SavedResults(TorchDispatchMode):
    """Results that autograd may save for a backward: of operators, and of the operators that run within them.

    Autograd hands a saved result back as another tensor object with the same memory.

    Args:
        node_of: finds the node of a tensor.
    """

    def __init__(self, node_of: Callable[[torch.Tensor], torch.fx.Node | None]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._node_of = node_of
        self._by_storage: dict[int | None, list[tuple[torch.Tensor, torch.fx.Node]]] = {}
        self._inner: dict[int, InnerCall] = {}
        self._last: list[InnerCall] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Record a call below autograd."""
        origins = pytree.tree_map_only(torch.Tensor, self._origin, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func._schema.is_mutable:
            call = self._inner[id(result)] = InnerCall(func, result, origins)
            self._last.append(call)
        return result

    def _origin(self, tensor: torch.Tensor) -> object:
        node = self._node_of(tensor)
        return self._inner.get(id(tensor), tensor) if node is None else node

    def finish(self, node: torch.fx.Node) -> None:
        """Set the outer node of the inner calls that were recorded since the last `finish`."""
        for call in self._last:
            call.before = node
        self._last.clear()

    def keep(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Record the node of a result."""
        self._by_storage.setdefault(storage_of(tensor), []).append((tensor, node))

    def inner_call(self, tensor: torch.Tensor) -> InnerCall | None:
        """Return the inner call whose result is this tensor object; None if there is none."""
        return self._inner.get(id(tensor))

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """Return the node of the kept result with a tensor's memory, element type and layout, or None."""
        for result, node in self._by_storage.get(storage_of(tensor), ()):
            if (
                result.dtype == tensor.dtype
                and result.shape == tensor.shape
                and result.stride() == tensor.stride()
                and result.storage_offset() == tensor.storage_offset()
            ):
                return node
        return None

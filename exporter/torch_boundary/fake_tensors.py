"""Fake tensors, which have only element types and sizes, and their storages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
import torch.fx
from torch._C._functorch import get_unwrapped, is_batchedtensor, maybe_get_level
from torch._subclasses import fake_impls as fake_impls
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable_wrapper_subclass

from . import probe
from .operators.overloads import OpOverload
from .process.process_state import disable_backends

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_without_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds no data itself, because it is fake or wraps other tensors."""
    if type(tensor) in _PLAIN:
        return False
    return is_traceable_wrapper_subclass(tensor) or isinstance(tensor, (FakeTensor, FunctionalTensor))


def unwrap_batches(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside the wrappers that `vmap` adds; return other tensors unchanged."""
    while is_batchedtensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def batch_level(tensor: torch.Tensor) -> int:
    """Return the level of the innermost `vmap` that wraps a tensor; 0 if none does."""
    return maybe_get_level(tensor) if is_batchedtensor(tensor) else 0


def storage_of(tensor: object) -> int | None:
    """Return a key that is equal for tensors that share a storage; None for a value without one.

    Within `vmap`, the storage is that of the batched tensor.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return None
    # Fake tensors have no memory, so the C++ storage object identifies them, not `data_ptr`.
    result: int | None = unwrap_batches(tensor).untyped_storage()._cdata
    return result


def mode_of(tensors: Sequence[object]) -> FakeTensorMode:
    """Return the fake mode of the fake tensors in `tensors`; a new mode if none of them is fake."""
    modes = (item.fake_mode for item in tensors if isinstance(item, FakeTensor))
    return next(modes, None) or FakeTensorMode()


def trace(
    function: Callable[..., object],
    mode: FakeTensorMode,
    examples: Sequence[object],
    decompositions: Mapping[OpOverload, Callable[..., object]] | None = None,
) -> torch.fx.GraphModule:
    """Trace the operators that a function runs on fake tensors; tensors with data become constants.

    Args:
        decompositions: functions that are traced in place of operators.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    # Constants of the function have data.
    mode.allow_non_fake_inputs, allowed = True, mode.allow_non_fake_inputs
    try:
        # Whether a library computes a convolution depends on the size of its batch, but its result does not.
        with mode, torch.no_grad(), disable_backends():
            make = make_fx(
                function, dict(decompositions or {}), tracing_mode="symbolic", _allow_non_fake_inputs=True
            )
            return make(*examples)
    finally:
        mode.allow_non_fake_inputs = allowed


@contextlib.contextmanager
def pretend_exporting() -> Iterator[None]:
    """Make `torch.compiler.is_exporting` return True within the context."""
    probe.require(probe.SIZE_LIMITS)
    from torch._export.utils import _compiling_state_context

    with _compiling_state_context():
        yield

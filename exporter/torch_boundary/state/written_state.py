"""Restores the values and gradients of a model's parameters and buffers after it has run on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from ..fake_tensors import TorchDispatchMode, storage_of
from ..operators.overloads import Args, Kwargs, OpOverload
from .module_tree import modules_of, tensors_of


@contextlib.contextmanager
def gradients_kept(model: object) -> Iterator[None]:
    """Restore `grad` and `requires_grad` of a model's parameters at the end.

    Within the context `grad` is None, because a model may write to it in place.
    """
    modules = modules_of(model) if isinstance(model, torch.nn.Module) else []
    parameters = [item for module in modules for item in module._parameters.values() if item is not None]
    saved_gradients = [(parameter, parameter.grad, parameter.requires_grad) for parameter in parameters]
    for parameter, gradient, _ in saved_gradients:
        if gradient is not None:
            parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient, needs_gradient in saved_gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
            if parameter.requires_grad != needs_gradient:
                parameter.requires_grad_(needs_gradient)


@contextlib.contextmanager
def values_kept(model: object, run: Callable[[], object]) -> Iterator[frozenset[str]]:
    """Restore the values of a model's parameters and buffers at the end; copies only written tensors.

    In training mode all buffers are copied, because normalizations write to them undeclared.

    Args:
        run: calls the model. It runs once before the context begins, to find out where the model writes; the
            trace itself must not be watched, or torch would not record convolutions, for example.

    Yields:
        The names of operators outside of torch that wrote to an argument.
    """
    modules = modules_of(model) if isinstance(model, torch.nn.Module) else []
    tensors = [tensor for module in modules for tensor in tensors_of(module)]
    original_data = [(tensor, tensor.data) for tensor in tensors]
    writes = _Writes(tensors)
    for module in modules:
        for buffer in module._buffers.values():
            if module.training and buffer is not None:
                writes.keep(buffer)

    def restore() -> None:
        for tensor, data in original_data:
            # The model assigned to `data`: copying values back would not undo that.
            if storage_of(tensor) != storage_of(data):
                tensor.data = data
        for tensor, values, version in writes.saved.values():
            tensor.data.copy_(values)
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))

    try:
        with writes:
            run()
        restore()
        yield frozenset(writes.foreign_operators)
    finally:
        restore()


def written_tensors(tensors: list[torch.Tensor], run: Callable[[], object]) -> list[torch.Tensor]:
    """The tensors that a function writes to, directly or through views and `data`."""
    writes = _Writes(tensors)
    with writes:
        run()
    return [tensor for tensor, *_ in writes.saved.values()]


class _Writes(TorchDispatchMode):
    """Copies tensors before operators write to their storages.

    Attributes:
        saved: by `id`, each tensor with a copy of its values and its version counter.
        foreign_operators: the names of operators outside of torch that wrote to an argument.
    """

    def __init__(self, tensors: list[torch.Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
        self.saved: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self.foreign_operators: set[str] = set()
        self._watched: dict[int, list[torch.Tensor]] = {}
        for tensor in tensors:
            storage = storage_of(tensor)
            if storage is not None:
                self._watched.setdefault(storage, []).append(tensor)

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the values of a tensor, unless this was done before."""
        if id(tensor) not in self.saved:
            self.saved[id(tensor)] = tensor, tensor.detach().clone(), tensor._version

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            if func.namespace not in ("aten", "prims"):
                self.foreign_operators.add(func._schema.name)
            for position, formal in enumerate(func._schema.arguments):
                if formal.alias_info is not None and formal.alias_info.is_write:
                    argument = args[position] if position < len(args) else kwargs.get(formal.name)
                    for item in argument if isinstance(argument, (list, tuple)) else (argument,):
                        # A write to a view changes every tensor of its storage.
                        for tensor in self._watched.get(storage_of(item) or 0, ()):
                            self.keep(tensor)
        return func(*args, **kwargs)

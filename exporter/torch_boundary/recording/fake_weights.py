"""Replaces a model's parameters and buffers by fake tensors."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..fake_tensors import FakeTensor, FakeTensorMode, storage_of
from ..state.module_tree import ModuleTree


def replace_weights(
    tree: ModuleTree, mode: FakeTensorMode, device: torch.device | None
) -> dict[str, torch.Tensor]:
    """Replace every parameter and buffer of a model by a fake tensor; the caller restores the model.

    Args:
        device: the device of all fake tensors; None keeps the device of each tensor.

    Returns:
        The fake tensors by name; a tensor with several names has one fake tensor.
    """
    named = {**tree.parameters, **tree.buffers}
    # A capture has function modes active, which would handle each read of a tensor's attribute.
    with torch._C.DisableTorchFunction():
        fake_of = FakeWeights(named.values(), mode, device)
        fakes = {name: fake_of(tensor) for name, tensor in named.items()}
        for module in tree.modules.values():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is not None:
                        table[name] = fake_of(tensor)
        return fakes


def replaced_state(
    tree: ModuleTree, fakes: Mapping[str, torch.Tensor], assigned: Container[int]
) -> list[str]:
    """Return the names of parameters and buffers that the model replaced by other tensors.

    A buffer that is None before the call counts too: there is no tensor to write to.

    Args:
        fakes: the fake tensors that `replace_weights` returned, by name.
        assigned: the `id` of each tensor to whose `data` the model assigned.
    """
    reassigned = {
        name
        for name, (buffers, key) in tree.holders.items()
        if "." in name and buffers.get(key) is not fakes[name]
    }
    names = [name for name, fake in fakes.items() if name in reassigned or id(fake) in assigned]
    return names + [name for name, (buffers, key) in tree.absent.items() if buffers.get(key) is not None]


class FakeCopies:
    """Makes the same fake tensors from meta tensors as `FakeTensor` does, in a fifth of the time.

    torch sets some twenty attributes of each new fake tensor, one by one. They are equal for all new fake
    tensors of a mode and a device, so they are copied from the first one.

    Args:
        mode: the mode of the fake tensors, in which reading their memory is an error.
    """

    def __init__(self, mode: FakeTensorMode):
        self._mode = mode
        self._attributes: dict[torch.device, dict[str, object]] = {}

    def __call__(
        self, meta: torch.Tensor, device: torch.device, *, requires_grad: bool = False
    ) -> FakeTensor:
        """Make a fake tensor with the sizes, strides and storage of a meta tensor."""
        attributes = self._attributes.get(device)
        if attributes is None:
            attributes = dict(vars(FakeTensor(self._mode, meta, device)))
            self._attributes[device] = attributes
        fake = torch.Tensor._make_subclass(
            FakeTensor, meta, requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(fake)
        vars(fake).update(attributes)
        return fake


class FakeWeights:
    """Makes fake tensors of weights; repeated calls with one tensor return the same fake tensor.

    A tensor that fills its storage needs only a new meta tensor. torch's conversion, which keeps track of
    shared storages, takes several times as long.

    Args:
        tensors: all tensors that will be replaced, to find those that share a storage.
        device: the device of all fake tensors; None keeps the device of each tensor.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], mode: FakeTensorMode, device: torch.device | None):
        self._mode = mode
        self._device = device
        self._copy = FakeCopies(mode)
        self._fakes: dict[int, torch.Tensor] = {}
        self._replaced: set[int] = set()
        self._counts = collections.Counter(
            map(storage_of, {id(tensor): tensor for tensor in tensors}.values())
        )

    def __call__(self, tensor: Any) -> Any:
        """Return the fake tensor of a tensor; return a fake tensor that was made here unchanged."""
        if id(tensor) in self._replaced:
            return tensor
        fake = self._fakes.get(id(tensor))
        if fake is None:
            fake = self._fakes[id(tensor)] = self._fake(tensor)
            self._replaced.add(id(fake))
        return fake

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._is_all_of_its_storage(tensor):
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        else:
            # Views of one storage must become views of one fake storage.
            shared = tensor
            if not isinstance(tensor, FakeTensor):
                shared = self._mode.from_tensor(tensor, static_shapes=True)
                if self._device is None:
                    return shared
            # The storage of a fake tensor is one of the meta device.
            layout = (shared.storage_offset(), shared.shape, shared.stride())
            meta = torch.empty(0, dtype=tensor.dtype, device="meta").set_(shared.untyped_storage(), *layout)
        fake = self._copy(meta, self._device or tensor.device, requires_grad=tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            vars(fake)["_is_param"] = True
        return fake

    def _is_all_of_its_storage(self, tensor: torch.Tensor) -> bool:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            return False
        # torch's own conversion keeps track of shared, quantized, conjugated and partial storages.
        storage = tensor.untyped_storage()
        return (
            not tensor.is_quantized
            and not (tensor.is_conj() or tensor.is_neg())
            and tensor.device.type == "cpu"
            and self._counts[storage._cdata] == 1
            and tensor.storage_offset() == 0
            and storage.nbytes() == tensor.nbytes
        )


class AssignedBuffers:
    """Records the buffers of the root module that the model replaces, as torch.export sees them.

    Attributes:
        values: the last tensor assigned to each buffer, in the order of the first assignments.
    """

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self.values: dict[str, torch.Tensor] = {}

    @contextlib.contextmanager
    def record_assignments(self) -> Iterator[None]:
        """Record the assignments within the context."""

        def note(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
            # A module with several paths is called through stand-in modules, which share its buffers.
            if module._buffers is self._model._buffers:
                self.values[name] = value

        handle = torch.nn.modules.module.register_module_buffer_registration_hook(note)
        try:
            yield
        finally:
            handle.remove()

"""Puts fake tensors in the place of a model's parameters and buffers."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def replace_weights(
    model: torch.nn.Module, named: Mapping[str, torch.Tensor], mode: FakeTensorMode
) -> dict[str, torch.Tensor]:
    """Replace every parameter and buffer by a fake tensor; the caller restores the model.

    Args:
        named: the parameters and buffers by name, tied ones under each of their names.

    Returns:
        The fake tensors by name; one tensor under several names is one fake tensor.
    """
    # Modes of torch functions, of which there are some in a capture, see each reading of an attribute.
    with torch._C.DisableTorchFunction():
        fake_of = FakeWeights(named.values(), mode)
        fakes = {name: fake_of(tensor) for name, tensor in named.items()}
        for module in model.modules():
            for held in (module._parameters, module._buffers):
                for name, tensor in held.items():
                    if tensor is not None:
                        held[name] = fake_of(tensor)
        return fakes


def replaced_buffers(model: torch.nn.Module, fakes: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of the buffers of submodules that hold other tensors than `replace_weights` put there.

    Args:
        fakes: what it returned.
    """
    return [
        name
        for name, tensor in model.named_buffers(remove_duplicate=False)
        if "." in name and name in fakes and tensor is not fakes[name]
    ]


class FakeWeights:
    """Makes one fake tensor for each tensor.

    A tensor that is all of its storage needs only a meta tensor, which takes a fraction of the time that
    torch takes to keep track of shared storages.

    Args:
        tensors: all that will be replaced.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], mode: FakeTensorMode):
        self._mode = mode
        self._made: dict[int, torch.Tensor] = {}
        self._replaced: set[int] = set()
        self._counts = collections.Counter(map(_storage, {id(each): each for each in tensors}.values()))

    def __call__(self, tensor: Any) -> Any:
        """The fake tensor that stands for a tensor; one that was made here stands for itself."""
        if id(tensor) in self._replaced:
            return tensor
        fake = self._made.get(id(tensor))
        if fake is None:
            fake = self._made[id(tensor)] = self._fake(tensor)
            self._replaced.add(id(fake))
        return fake

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._is_all_of_its_storage(tensor):
            return self._mode.from_tensor(tensor, static_shapes=True)
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        fake = FakeTensor(self._mode, meta, tensor.device)
        fake.requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            fake._is_param = True
        return fake

    def _is_all_of_its_storage(self, tensor: torch.Tensor) -> bool:
        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout == torch.strided
            and not tensor.is_quantized
            and not (tensor.is_conj() or tensor.is_neg())
            and tensor.device.type == "cpu"
            and self._counts[_storage(tensor)] == 1
            and tensor.storage_offset() == 0
            and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        )


def _storage(tensor: torch.Tensor) -> Any:
    """A key of a tensor's storage, None where it has none."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else None


def non_persistent(model: torch.nn.Module) -> set[str]:
    """The names of the buffers that are not part of the model's state_dict."""
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }


class AssignedBuffers:
    """The buffers of a model itself that are replaced within `noted`, as torch.export sees them.

    Attributes:
        values: the last value of each, in the order of the first assignments.
    """

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self.values: dict[str, torch.Tensor] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the assignments within the context."""

        def note(module: torch.nn.Module, name: str, value: Any) -> None:
            # A module reached by several paths is called by stand-ins, which share its buffers.
            if module._buffers is self._model._buffers:
                self.values[name] = value

        handle = torch.nn.modules.module.register_module_buffer_registration_hook(note)
        try:
            yield
        finally:
            handle.remove()

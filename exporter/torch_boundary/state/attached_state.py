"""Gives a model other parameters and buffers for a while, and reads the places of tensors in a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .. import probe
from ..fake_tensors import FakeTensorMode


@dataclasses.dataclass(frozen=True)
class Holder:
    """A place of a model that holds a parameter or buffer.

    Attributes:
        name: its name, `layers.0.weight`. A shared module has several.
        registered: the dict of its module that holds it.
        key: its key there.
        module: the module.
        is_buffer: whether it is a buffer.
        persistent: whether the state_dict has it.
    """

    name: str
    registered: dict[str, torch.Tensor | None]
    key: str
    module: torch.nn.Module
    is_buffer: bool
    persistent: bool

    @property
    def tensor(self) -> torch.Tensor:
        """The parameter or buffer."""
        found = self.registered[self.key]
        assert found is not None
        return found


def holders(model: torch.nn.Module) -> list[Holder]:
    """Every place of a model that holds a parameter or buffer, tied ones each time.

    TorchScript modules have other places.
    """
    found = []
    for path, module in model.named_modules(remove_duplicate=False):
        own = vars(module)
        prefix = f"{path}." if path else ""
        for kind, is_buffer in (("_parameters", False), ("_buffers", True)):
            for key, tensor in own.get(kind, {}).items():
                if tensor is not None:
                    transient = is_buffer and key in own["_non_persistent_buffers_set"]
                    found.append(Holder(prefix + key, own[kind], key, module, is_buffer, not transient))
    return found


@contextlib.contextmanager
def attached(replacements: Mapping[int, torch.Tensor], model: torch.nn.Module) -> Iterator[None]:
    """Replace parameters and buffers of a model until the end.

    Args:
        replacements: the new tensors, by the `id` of those that they replace.
    """
    held = [(holder, holder.tensor) for holder in holders(model)]
    made: dict[int, torch.Tensor] = {}
    try:
        for holder, old in held:
            new = replacements.get(id(old))
            if new is not None:
                if id(old) not in made:
                    made[id(old)] = _as_parameter(old, new)
                holder.registered[holder.key] = made[id(old)]
        yield
    finally:
        for holder, old in held:
            holder.registered[holder.key] = old


def _as_parameter(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """A new tensor as a parameter, with the old one's own attributes, if the old one is a parameter."""
    made = new
    if isinstance(old, torch.nn.Parameter):
        made = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    with contextlib.suppress(AttributeError):
        vars(made).update({key: item for key, item in vars(old).items() if key not in vars(made)})
    return made


def over(contents: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over the bytes of a buffer, which may be read-only: no forward writes to it."""
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.frombuffer(contents, dtype=dtype).reshape(shape)


class Placeholders:
    """Makes tensors without contents, on the CPU: whoever reads one gets an error from torch."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode()

    def __call__(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor without contents."""
        with self._mode:
            return torch.empty(shape, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a tensor in a checkpoint of torch.save.

    Attributes:
        dtype, shape, strides: those of the tensor; strides in elements.
        offset: the offset of its first element in the file, in bytes.
        end: the end of its last element in the file; the offset if it is empty.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    end: int


def checkpoint_places(path: str | os.PathLike[str]) -> Mapping[Any, Any]:
    """What a checkpoint holds, with a `Place` for each tensor of an outermost dict. No tensor is read.

    Raises:
        ValueError: torch cannot read it, or only by running code from it.
    """
    probe.need(probe.CHECKPOINTS)
    try:
        with FakeTensorMode():
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"torch.load refuses it: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(content).__name__}, not a dict of tensors")
    return {
        name: _place(item) if isinstance(item, torch.Tensor) and item.layout == torch.strided else item
        for name, item in content.items()
    }


def _place(tensor: torch.Tensor) -> Place:
    begin = tensor.untyped_storage()._checkpoint_offset
    assert begin is not None, "torch.load under FakeTensorMode sets it"
    shape, strides = tuple(tensor.shape), tensor.stride()
    first = begin + int(tensor.storage_offset()) * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    count = 0 if 0 in shape else 1 + last
    return Place(tensor.dtype, shape, strides, first, first + count * tensor.element_size())

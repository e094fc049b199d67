"""Temporarily replaces parameters and buffers of a model, and locates the tensors in a checkpoint file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .. import probe
from ..fake_tensors import FakeTensorMode


@dataclasses.dataclass(frozen=True)
class Holder:
    """An entry of a module's `_parameters` or `_buffers`.

    Attributes:
        name: the qualified name, such as `layers.0.weight`; a shared module has an entry for each name.
        registered: the `_parameters` or `_buffers` of the module.
        key: the key in that dict.
        module: the module.
        is_buffer: whether the tensor is a buffer.
        persistent: whether the state_dict contains the tensor.
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
        tensor = self.registered[self.key]
        assert tensor is not None
        return tensor


def holders(model: torch.nn.Module) -> list[Holder]:
    """Return the entry of every parameter and buffer in a model; a tied tensor has several.

    TorchScript modules keep their tensors elsewhere and have no entries.
    """
    entries = []
    for path, module in model.named_modules(remove_duplicate=False):
        attributes = vars(module)
        prefix = f"{path}." if path else ""
        for table_name, is_buffer in (("_parameters", False), ("_buffers", True)):
            for key, tensor in attributes.get(table_name, {}).items():
                if tensor is not None:
                    transient = is_buffer and key in attributes["_non_persistent_buffers_set"]
                    entries.append(
                        Holder(prefix + key, attributes[table_name], key, module, is_buffer, not transient)
                    )
    return entries


@contextlib.contextmanager
def attach_tensors(replacements: Mapping[int, torch.Tensor], model: torch.nn.Module) -> Iterator[None]:
    """Replace parameters and buffers of a model within the context.

    Args:
        replacements: the new tensors, by the `id` of the tensor to replace; others stay.
    """
    originals = [(holder, holder.tensor) for holder in holders(model)]
    attached_tensors: dict[int, torch.Tensor] = {}
    try:
        for holder, old in originals:
            new = replacements.get(id(old))
            if new is not None:
                # Tied parameters must stay one object.
                if id(old) not in attached_tensors:
                    attached_tensors[id(old)] = _as_parameter(old, new)
                holder.registered[holder.key] = attached_tensors[id(old)]
        yield
    finally:
        for holder, old in originals:
            holder.registered[holder.key] = old


def _as_parameter(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Make the new tensor a parameter if the old one is, and copy the old one's Python attributes to it."""
    replacement = new
    if isinstance(old, torch.nn.Parameter):
        replacement = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    with contextlib.suppress(AttributeError):
        vars(replacement).update(
            {key: item for key, item in vars(old).items() if key not in vars(replacement)}
        )
    return replacement


def tensor_over_buffer(
    contents: bytes | bytearray | memoryview | np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    """Make a tensor that uses the memory of a buffer, which may be read-only; nothing may write to it."""
    # `frombuffer` refuses an empty buffer.
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.frombuffer(contents, dtype=dtype).reshape(shape)


class FakeTensorMaker:
    """Makes fake tensors on the CPU; torch raises an error when the model reads their elements."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode()

    def __call__(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """Make a fake tensor."""
        with self._mode:
            return torch.empty(shape, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class CheckpointTensor:
    """The position of a tensor in a checkpoint file of torch.save.

    Attributes:
        dtype, shape, strides: of the tensor; strides count elements.
        offset: the offset of the first element in the file, in bytes.
        end: the offset after the last element; equals `offset` if the tensor is empty.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    end: int


def checkpoint_tensors(path: str | os.PathLike[str]) -> Mapping[Any, object]:
    """Return the dict in a checkpoint, with a `CheckpointTensor` for each dense tensor; reads no elements.

    Raises:
        ValueError: torch cannot read the file without running code from it, or it holds no dict.
    """
    probe.require(probe.CHECKPOINTS)
    try:
        # Under this mode torch.load notes the offset of each storage, and reads no bytes.
        with FakeTensorMode():
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"torch.load refuses it: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(content).__name__}, not a dict of tensors")
    return {
        name: _locate_tensor(item)
        if isinstance(item, torch.Tensor) and item.layout == torch.strided
        else item
        for name, item in content.items()
    }


def _locate_tensor(tensor: torch.Tensor) -> CheckpointTensor:
    begin = tensor.untyped_storage()._checkpoint_offset
    assert begin is not None, "torch.load under FakeTensorMode sets it"
    shape, strides = tuple(tensor.shape), tensor.stride()
    first = begin + int(tensor.storage_offset()) * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    # An empty tensor has no last element.
    count = 0 if 0 in shape else 1 + last
    return CheckpointTensor(tensor.dtype, shape, strides, first, first + count * tensor.element_size())

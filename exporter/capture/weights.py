"""Finds tensors that share memory: weights under several names, and views."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..torch_boundary.fake_tensors import is_without_data, storage_of
from .tensor_kinds import without_data

Identity = tuple[object, ...]


def identity(name: str, tensor: torch.Tensor) -> Identity:
    """A key that is equal for two tensors with the same elements of the same memory.

    A tensor without elements or without strides has no memory; its name is the key.
    """
    if tensor.layout != torch.strided or not tensor.numel():
        return (name,)
    if without_data(tensor) is not None:
        return storage_of(tensor), tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride()
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def first_names(identities: Iterable[tuple[str, Identity]]) -> dict[Identity, str]:
    """Return the first name of each distinct weight."""
    names: dict[Identity, str] = {}
    for name, key in identities:
        names.setdefault(key, name)
    return names


def share_memory(first: object, second: object) -> bool:
    """Whether two tensors have one storage."""
    storage = storage_of(first)
    return storage is not None and storage == storage_of(second)


_FEWEST_REPEATED = 4096
"""Repeating fewer elements in a file takes no more space than an operator and its shape."""


def without_repetitions(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with size 1 along the axes that repeat one slice of memory, if that saves much.

    `expand` makes such axes. They have the stride 0.
    """
    if tensor.layout != torch.strided or is_without_data(tensor) or tensor.is_quantized:
        return tensor
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    distinct = tuple(slice(0, 1) if stride == 0 else slice(None) for _, stride in sizes)
    reduced = tensor[distinct]
    return reduced if tensor.numel() - reduced.numel() >= _FEWEST_REPEATED else tensor

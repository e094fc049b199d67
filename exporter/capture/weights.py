"""Weights that are one: the same memory under several names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

Identity = tuple[Any, ...]


def identity(name: str, tensor: torch.Tensor) -> Identity:
    """What two tensors have in common when they are the same elements of the same memory.

    One without elements has no memory: it is known by its name.
    """
    if not tensor.numel():
        return (name,)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def first_names(named: Iterable[tuple[str, torch.Tensor]]) -> dict[Identity, str]:
    """The first name of each weight."""
    names: dict[Identity, str] = {}
    for name, tensor in named:
        names.setdefault(identity(name, tensor), name)
    return names

"""Assignments to parts of tensors at symbolic positions, which PyTorch refuses."""

from __future__ import annotations

from typing import Any

import torch

from ..fake_tensors import FakeTensor

_MASKS = (torch.bool, torch.uint8)


def has_symbolic_index(index: object) -> bool:
    """Whether an index selects by a symbolic number or an integer tensor of rank 0, which PyTorch reads."""
    items = index if isinstance(index, tuple) else (index,)
    return any(map(_is_symbolic, items))


def _is_symbolic(item: object) -> bool:
    if isinstance(item, FakeTensor):
        # Bytes and truth values are masks.
        return item.dim() == 0 and not item.is_floating_point() and item.dtype not in _MASKS
    return isinstance(item, torch.SymInt)


def assign_item(tensor: torch.Tensor, index: object, value: Any) -> None:
    """`tensor[index] = value`: selects at the symbolic positions, then assigns with the rest of the index."""
    items = index if isinstance(index, tuple) else (index,)
    axes = sum(map(_number_of_axes, items))
    view, axis = tensor, 0
    remaining_items: list[Any] = []
    for item in items:
        if _is_symbolic(item):
            position = item.item() if isinstance(item, torch.Tensor) else item
            view = torch.ops.aten.select.int(view, axis, position)
            continue
        axis += tensor.dim() - axes if item is Ellipsis else _number_of_axes(item)
        remaining_items.append(item)
    view[tuple(remaining_items) or ...] = value


def _number_of_axes(item: object) -> int:
    """How many axes an item of an index selects from."""
    if isinstance(item, torch.Tensor) and item.dtype in _MASKS:
        return item.dim()
    return int(item is not None and item is not Ellipsis and not isinstance(item, bool))

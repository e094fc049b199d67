"""Assigns to parts of tensors at symbolic positions, which PyTorch refuses."""

from __future__ import annotations

from typing import Any

import torch

from ...fake_tensors import FakeTensor

_MASKS = (torch.bool, torch.uint8)


def has_symbolic_index(index: object) -> bool:
    """Whether an index has a symbolic number, or an integer tensor of rank 0, which PyTorch would read."""
    items = index if isinstance(index, tuple) else (index,)
    scalars = [item for item in items if isinstance(item, FakeTensor) and item.dim() == 0]
    # Bytes and truth values are masks.
    is_read = any(not item.is_floating_point() and item.dtype not in _MASKS for item in scalars)
    return is_read or any(isinstance(item, torch.SymInt) for item in items)


def assign_item(tensor: torch.Tensor, index: object, value: Any) -> None:
    """Do `tensor[index] = value`: `select` at the symbolic positions, then assign by the other indices."""
    items = index if isinstance(index, tuple) else (index,)
    # How many axes each item selects from.
    counts = [
        item.dim()
        if isinstance(item, torch.Tensor) and item.dtype in _MASKS
        else int(item is not None and item is not Ellipsis and not isinstance(item, bool))
        for item in items
    ]
    view, axis = tensor, 0
    remaining_items: list[Any] = []
    for item, count in zip(items, counts, strict=True):
        if has_symbolic_index(item):
            position = item.item() if isinstance(item, torch.Tensor) else item
            view = torch.ops.aten.select.int(view, axis, position)
            continue
        axis += tensor.dim() - sum(counts) if item is Ellipsis else count
        remaining_items.append(item)
    # A slice of a whole axis would be an operator, and a loop that writes to it would write no row.
    while remaining_items and isinstance(last := remaining_items[-1], slice):
        if not all(bound is None for bound in (last.start, last.stop, last.step)):
            break
        remaining_items.pop()
    view[tuple(remaining_items) or ...] = value

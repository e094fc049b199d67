"""Reads and assigns to parts of tensors at symbolic positions, which PyTorch refuses."""

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


def mixes_symbols_with_tensors(index: object) -> bool:
    """Whether an index has a symbolic number beside tensors or lists, for which torch makes no `select`."""
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(item, torch.SymInt) for item in items) and any(
        isinstance(item, (bool, list)) or (isinstance(item, torch.Tensor) and item.dim()) for item in items
    )


def read_item(tensor: torch.Tensor, index: object) -> torch.Tensor:
    """Return `tensor[index]`: `select` at symbolic positions, as PyTorch does at numbers, then the others."""
    view, remaining_items = _select_at_symbols(tensor, index)
    return view[tuple(remaining_items)]


def assign_item(tensor: torch.Tensor, index: object, value: Any) -> None:
    """Do `tensor[index] = value`: `select` at the symbolic positions, then assign by the other indices."""
    view, remaining_items = _select_at_symbols(tensor, index)
    # A slice of a whole axis would be an operator, and a loop that writes to it would write no row.
    while remaining_items and isinstance(last := remaining_items[-1], slice):
        if not all(bound is None for bound in (last.start, last.stop, last.step)):
            break
        remaining_items.pop()
    view[tuple(remaining_items) or ...] = value


def _select_at_symbols(tensor: torch.Tensor, index: object) -> tuple[torch.Tensor, list[Any]]:
    """The part of a tensor at the symbolic positions of an index, and the other items of the index."""
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
    return view, remaining_items

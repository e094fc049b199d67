"""Assignments to parts of tensors at symbolic positions, which PyTorch refuses."""

from __future__ import annotations

from typing import Any

import torch


def has_symbolic_index(index: object) -> bool:
    """Whether an index selects by a symbolic number, which an assignment refuses, and has no tensors."""
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(item, torch.SymInt) for item in items) and all(
        item is None or item is Ellipsis or isinstance(item, (int, slice, torch.SymInt)) for item in items
    )


def assign_slice(tensor: torch.Tensor, index: object, value: Any) -> None:
    """`tensor[index] = value` for an index without tensors."""
    items = index if isinstance(index, tuple) else (index,)
    axes = sum(item is not None and item is not Ellipsis for item in items)
    view, axis = tensor, 0
    for item in items:
        if item is Ellipsis:
            axis += tensor.dim() - axes
        elif item is None:
            view, axis = view.unsqueeze(axis), axis + 1
        elif item == slice(None):
            axis += 1
        elif isinstance(item, slice):
            view = torch.ops.aten.slice.Tensor(view, axis, item.start, item.stop, item.step or 1)
            axis += 1
        else:
            view = torch.ops.aten.select.int(view, axis, item)
    if not isinstance(value, torch.Tensor):
        view.fill_(value)
        return
    # An assignment ignores leading axes of size 1.
    while value.dim() > view.dim() and value.shape[0] == 1:
        value = value[0]
    view.copy_(value)

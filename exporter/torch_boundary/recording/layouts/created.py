"""Tensors that functions without a tensor among their arguments create."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch

from .layout import Rule, Size, TensorLayout, contiguous_strides, is_positive


def _range(
    *ends: object,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorLayout | None:
    """Integers up to a symbolic end, or between two ends with at least one symbol."""
    if not _are_sizes(ends):
        return None
    length = ends[0] if len(ends) == 1 else ends[1] - ends[0]
    is_known = is_positive(length) and not layout and not pin_memory
    return _on(device, dtype or torch.int64, (length,)) if is_known else None


def _are_sizes(items: tuple[object, ...]) -> TypeGuard[tuple[Size, ...]]:
    return all(type(item) in (int, torch.SymInt) for item in items)


def _fill(
    size: Sequence[Size],
    *value: object,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorLayout | None:
    """Tensors of zeros or ones, or of a value with an explicit element type."""
    is_known = (dtype is not None or not value) and not layout and not pin_memory
    return _on(device, dtype or torch.get_default_dtype(), size) if is_known else None


def _on(device: torch.device | None, dtype: torch.dtype, shape: Sequence[Size]) -> TensorLayout | None:
    stride = contiguous_strides(shape)
    resolved_device = torch.get_default_device() if device is None else torch.device(device)
    return None if stride is None else TensorLayout(dtype, tuple(shape), stride, resolved_device)


RULES: dict[str, Rule] = {
    "aten::arange": _range,
    "aten::arange.start": _range,
    "aten::full": _fill,
    "aten::ones": _fill,
    "aten::zeros": _fill,
}

"""Layouts of tensors that functions such as `zeros` create, which take no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch

from .layout import Rule, Size, TensorLayout, contiguous_strides, is_positive


def _range(*ends: object, **options: Any) -> TensorLayout | None:
    """The layout of `arange` up to an integer end, or between two; ends may be symbolic."""
    if not _are_sizes(ends):
        return None
    length = ends[0] if len(ends) == 1 else ends[1] - ends[0]
    # A range that is empty for some sizes is left to the kernel.
    return _new((length,), torch.int64, **options) if is_positive(length) else None


def _are_sizes(items: tuple[object, ...]) -> TypeGuard[tuple[Size, ...]]:
    return all(type(item) in (int, torch.SymInt) for item in items)


def _fill(size: Sequence[Size], *value: object, **options: Any) -> TensorLayout | None:
    """The layout of `zeros`, `ones`, or `full` with an explicit element type."""
    # Without a `dtype`, the element type of `full` depends on its value.
    if value and options.get("dtype") is None:
        return None
    return _new(size, torch.get_default_dtype(), **options)


def _new(
    shape: Sequence[Size],
    default_dtype: torch.dtype,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> TensorLayout | None:
    stride = contiguous_strides(shape)
    if stride is None or layout or pin_memory:
        return None
    resolved_device = torch.get_default_device() if device is None else torch.device(device)
    return TensorLayout(dtype or default_dtype, tuple(shape), stride, resolved_device)


RULES: dict[str, Rule] = {
    "aten::arange": _range,
    "aten::arange.start": _range,
    "aten::full": _fill,
    "aten::ones": _fill,
    "aten::zeros": _fill,
}

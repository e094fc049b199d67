"""Functions of torch that convert size arguments to Python numbers, rewritten for dynamic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..symbolic_numbers import holds_always


def has_dynamic_steps(start: object = None, end: object = None, steps: object = None, **options: Any) -> bool:
    """Whether a call of `torch.linspace` would fix its number of elements, and `linspace` supports it."""
    dtype = options.get("dtype") or torch.get_default_dtype()
    is_plain = options.keys() <= {"dtype", "device", "requires_grad"} and dtype.is_floating_point
    has_tensor = isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor)
    return isinstance(steps, torch.SymInt) and is_plain and not has_tensor


def linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Floats at equal distances, computed from both ends as in PyTorch."""
    dtype = dtype or torch.get_default_dtype()
    first, last = (torch.full((), item, dtype=dtype, device=device) for item in (start, end))
    step = (last - first) / torch.sym_max(steps - 1, 1)
    index = torch.arange(steps, device=device)
    upwards, downwards = first + step * index, last + step * index.sub(steps - 1)
    return torch.where(index < torch.sym_max(steps // 2, 1), upwards, downwards)


def has_dynamic_size(theta: torch.Tensor, size: Sequence[object], align_corners: bool | None = None) -> bool:
    """Whether a call of `affine_grid` would fix a size."""
    return any(isinstance(item, torch.SymInt) for item in size)


def affine_grid(
    theta: torch.Tensor, size: Sequence[int | torch.SymInt], align_corners: bool | None = None
) -> torch.Tensor:
    """The positions of an image's or a volume's elements, from -1 to 1, under an affine map for each item.

    Without `align_corners`, -1 and 1 are the outer edges of the first and the last element, not their
    centres. An only element is at 0.
    """
    spatial = size[2:]
    axes = []
    for steps in spatial:
        centres = linspace(-1.0, 1.0, steps, dtype=theta.dtype, device=theta.device)
        axes.append(centres * (torch.sym_min(steps - 1, 1) if align_corners else (steps - 1) / steps))
    coordinates = torch.meshgrid(*axes, indexing="ij")
    base = torch.stack([*coordinates[::-1], torch.ones_like(coordinates[0])], dim=-1)
    grid = base.reshape(1, -1, len(spatial) + 1) @ theta.transpose(1, 2)
    return grid.reshape(size[0], *spatial, len(spatial))


def has_dynamic_length(input: torch.Tensor, n_fft: int, *positional: object, **named: object) -> bool:
    """Whether a call of `torch.istft` would fix the length of its result."""
    length = positional[6] if len(positional) > 6 else named.get("length")
    return isinstance(length, torch.SymInt)


def istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """The signal of a spectrum, cut off at a length or followed by zeros up to it, as in PyTorch.

    With a given length, the last half frame, which torch cuts off otherwise, stays part of the signal.
    """
    options = window, False, normalized, onesided, None, return_complex
    signal = torch.istft(input, n_fft, hop_length, win_length, *options)
    start = n_fft // 2 if center else 0
    if not holds_always(start + length <= signal.shape[-1]):
        signal = F.pad(signal, (0, length))
    return signal[..., start : start + length]


def has_symbolic_index(index: object) -> bool:
    """Whether an index selects by a symbolic number, which an assignment refuses, and has no tensors."""
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(item, torch.SymInt) for item in items) and all(
        item is None or item is Ellipsis or isinstance(item, (int, slice, torch.SymInt)) for item in items
    )


def assign_slice(tensor: torch.Tensor, index: Any, value: Any) -> None:
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

"""Shape-only kernels for hashes in torch.export, because torch's kernel fixes the operand's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch

from .shape_kernels import in_place_of


def _hash_shape(
    self: torch.Tensor, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> torch.Tensor:
    # An empty list means all axes; a zero-dim tensor accepts axis 0.
    reduced_axes = {axis % max(self.dim(), 1) for axis in dim or range(self.dim())}
    sizes = [
        1 if axis in reduced_axes else size
        for axis, size in enumerate(self.shape)
        if keepdim or axis not in reduced_axes
    ]
    return self.new_empty(sizes, dtype=torch.uint64)


def by_shapes() -> AbstractContextManager[None]:
    """Use shape-only kernels for hashes within the context."""
    aten = torch.ops.aten
    kernels = {aten.hash_tensor.default: _hash_shape} if hasattr(aten, "hash_tensor") else {}
    return in_place_of({}, kernels)

"""A shape-only kernel for `hash_tensor` in torch.export, because torch's kernel fixes the operand's sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes


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


# Older releases of torch have no such operator.
NON_COMPOSITE: dict[OpOverload, Shapes] = (
    {torch.ops.aten.hash_tensor.default: _hash_shape} if hasattr(torch.ops.aten, "hash_tensor") else {}
)

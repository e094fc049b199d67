"""Shape-only kernels for fake quantization, which torch has none of for tensor scales and for channels."""

from __future__ import annotations

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes


def _like_input(self: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    """The shapes of the result and of the mask, which says what was in the range."""
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


NON_COMPOSITE: dict[OpOverload, Shapes] = {
    torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _like_input,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: _like_input,
}

"""Shape-only kernels for fake quantization with a tensor as scale or per channel, which torch lacks."""

from __future__ import annotations

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes


def _like_input(self: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tensors like the result and like the mask of the elements inside the quantized range."""
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


NON_COMPOSITE: dict[OpOverload, Shapes] = {
    torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _like_input,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: _like_input,
}

"""Shape-only kernels for connectionist temporal classification in torch.export.

The kernel stores probabilities whose number depends on the lengths, so torch.export refuses it. It also
converts lengths given as numbers to tensors, which torch.export cannot trace.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from .shape_kernels import in_place_of


def _losses(
    log_probs: torch.Tensor, targets: torch.Tensor, *options: object, **named: object
) -> tuple[torch.Tensor, ...]:
    """A loss for each sequence, and an empty tensor for gradients, which no model reads."""
    batch = log_probs.shape[1:2] if log_probs.dim() == 3 else ()
    return log_probs.new_empty(batch), log_probs.new_empty((0,))


def _reduce_losses(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    return log_probs.new_empty(()) if reduction else _losses(log_probs, targets)[0]


def by_shapes() -> AbstractContextManager[None]:
    """Use shape-only kernels for the losses within the context."""
    aten = torch.ops.aten
    return in_place_of(
        {aten.ctc_loss.IntList: _reduce_losses, aten.ctc_loss.Tensor: _reduce_losses},
        {aten._ctc_loss.default: _losses, aten._ctc_loss.Tensor: _losses},
    )

"""Shape-only kernels for `ctc_loss` in torch.export.

torch's kernel stores probabilities whose number depends on the lengths, so torch.export refuses it. It also
converts lengths that are numbers to tensors, which torch.export cannot trace.
"""

from __future__ import annotations

import torch

from ...operators.overloads import OpOverload
from .shape_kernels import Shapes


def _losses(
    log_probs: torch.Tensor, targets: torch.Tensor, *options: object, **named: object
) -> tuple[torch.Tensor, ...]:
    """Return a loss for each sequence, and an empty tensor for the probabilities, which no model reads."""
    # [time, batch, classes], or [time, classes] without a batch.
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


_ATEN = torch.ops.aten
COMPOSITE: dict[OpOverload, Shapes] = {
    _ATEN.ctc_loss.IntList: _reduce_losses,
    _ATEN.ctc_loss.Tensor: _reduce_losses,
}
NON_COMPOSITE: dict[OpOverload, Shapes] = {_ATEN._ctc_loss.default: _losses, _ATEN._ctc_loss.Tensor: _losses}

"""Connectionist temporal classification in torch.export, by its shapes alone.

Its kernel keeps probabilities whose number depends on the lengths, so that torch.export refuses it; and with
lengths that are numbers it makes tensors of them that torch.export cannot see.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from .shape_kernels import in_place_of


def _losses(
    log_probs: torch.Tensor, targets: torch.Tensor, *rest: Any, **named: Any
) -> tuple[torch.Tensor, ...]:
    """A loss for each sequence; and of what is kept for gradients, which no model sees, nothing."""
    batch = log_probs.shape[1:2] if log_probs.dim() == 3 else ()
    return log_probs.new_empty(batch), log_probs.new_empty((0,))


def _reduced(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    return log_probs.new_empty(()) if reduction else _losses(log_probs, targets)[0]


def by_shapes() -> AbstractContextManager[None]:
    """Within it, torch.export captures the losses by their shapes."""
    aten = torch.ops.aten
    return in_place_of(
        {aten.ctc_loss.IntList: _reduced, aten.ctc_loss.Tensor: _reduced},
        {aten._ctc_loss.default: _losses, aten._ctc_loss.Tensor: _losses},
    )

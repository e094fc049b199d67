"""Losses as operators that autograd differentiates, where torch's own derivative cannot be captured."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _multilabel_margin_loss(input: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """`torch.nn.functional.multilabel_margin_loss`; the labels of a row end before its first -1.

    torch's kernel has no derivative that make_fx records, and its decomposition counts the slots after the
    labels of a row as labels.
    """
    is_batch = input.dim() > 1
    scores, labels = (input, target) if is_batch else (input.unsqueeze(0), target.unsqueeze(0))
    count = scores.shape[1]
    positions = torch.arange(count)
    ends = torch.where(labels < 0, positions, count).amin(1, keepdim=True)
    is_label_slot = positions < ends
    labels = torch.where(is_label_slot, labels, 0)
    is_label = ((labels.unsqueeze(2) == positions) & is_label_slot.unsqueeze(2)).any(1)
    margins = (1.0 - scores.gather(1, labels).unsqueeze(2) + scores.unsqueeze(1)).relu()
    is_counted = is_label_slot.unsqueeze(2) & ~is_label.unsqueeze(1)
    losses = torch.where(is_counted, margins, 0.0).sum((1, 2)) / count
    # The numbers of reductions are those of ATen: none, mean, sum.
    if reduction:
        return losses.mean() if reduction == 1 else losses.sum()
    return losses if is_batch else losses[0]


LOSSES: dict[object, Callable[..., Tensor]] = {
    torch.ops.aten.multilabel_margin_loss.default: _multilabel_margin_loss
}

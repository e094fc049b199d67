"""Loops over a dynamic size that put their results in front of those of earlier iterations."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest
import torch

import opsetta


def decoded(scores: torch.Tensor) -> torch.Tensor:
    """Viterbi: the best states, followed from the last step to the first."""
    best, choices = scores[:, 0], []
    for step in range(1, scores.shape[1]):
        best, choice = (best[:, :, None] + scores[:, step][:, None]).max(1)
        choices.append(choice)
    state = best.argmax(1)
    path = [state]
    for choice in reversed(choices):
        state = choice.gather(1, state[:, None])[:, 0]
        path.insert(0, state)
    return torch.stack(path, 1)


def inserted(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows: list[torch.Tensor] = []
    for step in range(scores.shape[1]):
        rows.insert(0, scores[:, step] * 2)
    return torch.stack(rows, 1), rows[0]


def repeated(scores: torch.Tensor) -> torch.Tensor:
    first = scores[:, 0]
    rows = [first, first + 1]
    for _ in range(scores.shape[1]):
        rows.insert(0, first)
    return torch.cat(rows, 0)


def in_a_deque(scores: torch.Tensor) -> torch.Tensor:
    rows: collections.deque[torch.Tensor] = collections.deque()
    for step in range(scores.shape[1]):
        rows.appendleft(scores[:, step] + step)
    return torch.stack(list(rows), 1)


@pytest.mark.parametrize("model", [decoded, inserted, repeated, in_a_deque])
def test_results_in_front_agree_at_every_length(model: Callable[..., object]) -> None:
    program = opsetta.export(
        model, (torch.randn(2, 6, 5),), opset=13, dynamic_shapes=({1: "steps"},), capture="direct"
    )
    for steps in (6, 1, 2, 9):
        program.verify((torch.randn(2, steps, 5),))

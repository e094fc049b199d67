"""Result shapes of recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

OPERATORS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def shapes_of(name: str, overload: str) -> Callable[..., object] | None:
    """Return the shape function of a recurrent operator; None for other operators."""
    if name.removeprefix("aten::") not in OPERATORS:
        return None
    shapes: dict[str, Callable[..., object]] = {"input": padded_shapes, "data": packed_shapes}
    return shapes.get(overload)


def _states(hx: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(state) for state in ([hx] if isinstance(hx, torch.Tensor) else hx)]


def _features(states: Sequence[torch.Tensor], bidirectional: bool) -> int:
    return states[0].shape[2] * (1 + bidirectional)


def padded_shapes(
    input: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Return tensors like the results for padded sequences: the output, and the last states."""
    states = _states(hx)
    output = input.new_empty(*input.shape[:2], _features(states, bidirectional))
    return (output, *states)


def packed_shapes(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, ...]:
    """Return tensors like the results for packed sequences: the output, and the last states."""
    states = _states(hx)
    return (data.new_empty(data.shape[0], _features(states, bidirectional)), *states)

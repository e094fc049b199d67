"""Weights like those of a trained model: no vector is zero, and no two are equal."""

from __future__ import annotations

import torch


@torch.no_grad()
def spread_weights(model: torch.nn.Module, deviation: float) -> None:
    """Add noise to the parameters, and give batch normalization statistics of data."""
    for parameter in model.parameters():
        parameter.add_(deviation * torch.randn_like(parameter))
    spread_statistics(model)


@torch.no_grad()
def spread_statistics(model: torch.nn.Module) -> None:
    """Give batch normalization statistics of data."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


class FirstTensor(torch.nn.Module):
    """The first tensor of the results of a model whose inputs are named: TorchScript takes no dataclasses."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        result = self.model(**dict(zip(self.names, args, strict=True)))
        return result if isinstance(result, torch.Tensor) else result[0]

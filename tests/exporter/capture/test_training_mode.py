"""A model in training mode is announced, and nothing else is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opsetta

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def dropped(x: torch.Tensor) -> torch.Tensor:
            return self.dropout(self.linear(x))

        return torch.cond(x.sum() > 0, dropped, torch.relu, (self.norm(x),))


class DropoutInBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.dropout(x) * 2, torch.relu, (x,))


def exported(model: nn.Module, training: bool) -> torch.fx.GraphModule:
    """A graph that torch.export made in a mode; its own flag is set in both."""
    module = torch.export.export(model.train(training), (X,)).module()
    assert module.training
    return module


def announced(model: Any) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opsetta.export(model, (X,), opset=18, mutations="drop")
    return any("training mode" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("model", [Layers, DropoutInBranch])
@pytest.mark.parametrize("training", [False, True])
def test_a_graph_of_operators_is_in_the_mode_that_it_was_made_in(
    model: Callable[[], nn.Module], training: bool
) -> None:
    assert announced(exported(model(), training)) is training


@pytest.mark.parametrize("training", [False, True])
def test_a_graph_that_calls_modules_is_in_the_mode_of_its_flag(training: bool) -> None:
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))).train(training)
    assert announced(model) is training


@pytest.mark.parametrize("training", [False, True])
def test_a_module_is_in_the_mode_of_its_flag(training: bool) -> None:
    assert announced(nn.Sequential(nn.Linear(4, 4)).train(training)) is training

"""Weights of tensor subclasses that consist of several tensors, by torch.export's operator for these."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import opsetta

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(3, 40, 40)


class Scaled(nn.Module):
    """Computes with both parts of its weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.a + self.weight.b


class ScaledByParts(Scaled):
    """Computes with the parts of the parts of its weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.a.a + self.weight.a.b - self.weight.b.a


class Whole(Scaled):
    """Adds its weight to itself, which is an operator of the subclass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.weight + self.weight).a


def pair() -> TwoTensor:
    return TwoTensor(torch.randn(40, 40), torch.randn(40, 40))


def test_the_parts_of_a_weight_are_initializers_under_their_names() -> None:
    program = opsetta.export(Scaled(pair()).eval(), (X,), opset=13)
    assert set(program.model.graph.initializers) == {"weight.a", "weight.b"}
    program.verify()


def test_the_parts_of_parts_are_initializers_under_their_names() -> None:
    program = opsetta.export(ScaledByParts(TwoTensor(pair(), pair())).eval(), (X,), opset=13)
    assert set(program.model.graph.initializers) == {"weight.a.a", "weight.a.b", "weight.b.a"}
    program.verify()


def test_a_weight_of_two_modules_is_stored_once() -> None:
    first, second = Scaled(pair()), Scaled(pair())
    second.weight = first.weight
    program = opsetta.export(nn.Sequential(first, second).eval(), (X,), opset=13)
    assert set(program.model.graph.initializers) == {"0.weight.a", "0.weight.b"}
    program.verify()


def test_an_operator_on_the_subclass_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match=r"parameter 'weight' is a TwoTensor, which aten\.add"):
        opsetta.export(Whole(pair()).eval(), (X,), opset=13)


def test_an_input_of_a_subclass_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="input 'x' is a TwoTensor, which consists of several"):
        opsetta.export(Scaled(pair()).eval(), (pair(),), opset=13)

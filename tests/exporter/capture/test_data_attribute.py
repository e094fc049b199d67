"""Models that read or assign the attribute `data` of tensors, which torch's captures do not see."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opsetta


class Constrained(nn.Module):
    """Limits the norm of a weight in each call, as EEGNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.linear.weight.data.mul_(5)

    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.data = torch.renorm(self.linear.weight.data, 2, 0, 1.0)
        return self.linear(x)


class Shared(nn.Module):
    """Assigns to a buffer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.register_buffer("second", self.first)

    def forward(self, x: Tensor) -> Tensor:
        self.first.data = self.first / self.first.sum()
        return x * self.second


class Assigned(nn.Module):
    """An earlier view keeps the memory that its tensor had."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        doubled = x * 2
        elements = doubled.view(-1)
        doubled.data = x[:, :2].clone()
        doubled.add_(1)
        return doubled * 3, elements, x


class Changed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        doubled = x * 2
        doubled.data.mul_(3)
        doubled.data += 1
        return doubled + 1


class Read(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        doubled = x * 2
        doubled.data[0].fill_(3)
        return doubled + x.data


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("model", [Constrained, Shared, Assigned, Changed, Read])
@pytest.mark.filterwarnings("ignore:the model's forward replaces")
def test_the_values_are_those_of_the_call(model: type[nn.Module], opset: int) -> None:
    exported = model().eval()
    before = copy.deepcopy(exported.state_dict())
    program = opsetta.export(exported, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), opset=opset)
    assert all(torch.equal(value, before[name]) for name, value in exported.state_dict().items())
    assert program.dimensions["rows"].minimum == (1 if model is Read else 0)
    for rows in (1, 5):
        program.verify((torch.randn(rows, 4),))


def test_a_replaced_parameter_is_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match="replaces its parameter or buffer 'linear.weight'"):
        opsetta.export(Constrained().eval(), (torch.randn(3, 4),), opset=17)


@pytest.mark.parametrize("capture", ["torch.export", "trace"])
@pytest.mark.parametrize("model", [Constrained, Assigned, Changed])
def test_a_capture_that_does_not_see_the_assignment_refuses_it(model: type[nn.Module], capture: str) -> None:
    with pytest.raises(opsetta.CaptureError, match="only capture='direct' follows"):
        opsetta.export(model().eval(), (torch.randn(3, 4),), opset=17, capture=capture)


@pytest.mark.parametrize("capture", ["direct", "torch.export", "trace"])
def test_writes_to_data_are_writes_to_the_tensor(capture: str) -> None:
    model, x = Read().eval(), torch.randn(3, 4)
    opsetta.export(model, (x,), opset=17, capture=capture).verify((torch.randn(3, 4),))


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(2, 2))
        self.register_buffer("row", self.calls[0])

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(2)
        self.row.add_(1)
        return self.norm(x) * self.weight + self.calls.sum()


@pytest.mark.parametrize("training", [False, True])
def test_a_trace_leaves_the_weights_of_the_model_as_they_are(training: bool) -> None:
    model: Any = Writes().train(training)
    before, versions = copy.deepcopy(model.state_dict()), [each._version for each in model.parameters()]
    with pytest.raises(opsetta.MutationError, match="parameter 'weight'"):
        opsetta.export(model, (torch.randn(3, 4),), opset=17, capture="trace")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [each._version for each in model.parameters()] == versions

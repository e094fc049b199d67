"""Decisions on values of weights are those of eager PyTorch; those that depend on more are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import opsetta

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class State(nn.Module):
    """A model with buffers, and a function of them and of the input."""

    def __init__(self, function: Callable[[State, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.tensor(2))
        self.register_buffer("table", torch.arange(4.0))
        self.scale = nn.Parameter(torch.tensor([0.5, -3.0]))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def parameter(model: State, x: torch.Tensor) -> torch.Tensor:
    return x + 1 if (model.scale.abs().max() > 1).item() else x


def written_through_a_view(model: State, x: torch.Tensor) -> torch.Tensor:
    model.table[1:3].fill_(9.0)
    return x + 1 if model.table.sum() > 20 else x


def written_between(model: State, x: torch.Tensor) -> torch.Tensor:
    while model.count < 5:
        model.count += 1
        x = x * 2
    return x


def written_after(model: State, x: torch.Tensor) -> torch.Tensor:
    x = x + 1 if model.count == 2 else x
    model.count.fill_(7)
    return x - 1 if model.count == 2 else x


def replaced(model: State, x: torch.Tensor) -> torch.Tensor:
    model.table = model.table * 3
    return x + float(model.table.max()) if model.table.max() == 9 else x


def positions(model: State, x: torch.Tensor) -> torch.Tensor:
    found = (model.table > 0).nonzero()
    return x * found.shape[0] if found.shape[0] == 3 else x


def made_here(model: State, x: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros_like(x)
    mask[0, 0] = 1
    return x + 1 if mask.any() and not x.new_zeros(3).any() else x


def padded(model: State, x: torch.Tensor) -> torch.Tensor:
    y = nn.functional.pad(x, (0, int(model.count)))
    extra = torch.ceil(torch.tensor(y.shape[1]) / model.count).long()
    return y + 1 if extra == 3 else y


def numpy(model: State, x: torch.Tensor) -> torch.Tensor:
    return x * float(model.scale.detach().numpy().min())


def data(model: State, x: torch.Tensor) -> torch.Tensor:
    model.table.data.mul_(2)
    return x * model.scale.data.abs().max() + x.data if model.table.data.max() == 6 else x


ACCEPTED = [
    data,
    parameter,
    written_through_a_view,
    written_between,
    written_after,
    replaced,
    positions,
    made_here,
    padded,
    numpy,
]


@pytest.mark.parametrize("function", ACCEPTED, ids=lambda function: function.__name__)
def test_weights_decide_as_in_eager(function: Callable[[State, torch.Tensor], torch.Tensor]) -> None:
    model = State(function).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = State(function).eval()(X)
    program = opsetta.export(model, (X,), opset=17, capture="direct", mutations="drop")
    torch.testing.assert_close(program(X), expected)
    assert program.specializations == []
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def of_an_input(model: State, x: torch.Tensor) -> torch.Tensor:
    return x + 1 if (x * model.scale[0]).sum() > 0 else x


def of_a_buffer_with_inputs(model: State, x: torch.Tensor) -> torch.Tensor:
    model.table[:3].copy_(x[0])
    return x + 1 if model.table.sum() > 0 else x


def of_chance(model: State, x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.rand_like(model.table).sum() > 2 else x


def of_statistics(model: State, x: torch.Tensor) -> torch.Tensor:
    y = nn.functional.batch_norm(x, model.norm.running_mean, model.norm.running_var, training=True)
    return y + 1 if model.norm.running_mean.sum() > 0 else y


REFUSED = [of_an_input, of_a_buffer_with_inputs, of_chance, of_statistics]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_what_depends_on_more_is_refused(function: Callable[[State, torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values"):
        opsetta.export(State(function).eval(), (X,), capture="direct", mutations="drop")


def test_a_dynamic_size_is_no_constant() -> None:
    def function(model: State, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.ones(x.shape[0]).sum() > 2 else x

    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values"):
        opsetta.export(State(function).eval(), (X,), capture="direct", dynamic_shapes=(({0: "n"}),))
    program = opsetta.export(State(function).eval(), (X,), capture="direct")
    torch.testing.assert_close(program(X), X)


def test_a_number_that_decides_nothing_is_read_when_the_program_runs() -> None:
    def function(model: State, x: torch.Tensor) -> torch.Tensor:
        return x * model.count.item()

    program = opsetta.export(State(function).eval(), (X,), capture="direct")
    names = [name for name in program.source.graph.initializers if name.endswith("count")]
    assert names == ["count"]


def test_the_length_of_a_tensor_stays_dynamic() -> None:
    def function(model: State, x: torch.Tensor) -> torch.Tensor:
        return model.table[:3].expand(len(x), 3) * len([1, 2]) + x

    program = opsetta.export(State(function).eval(), (X,), dynamic_shapes={"x": {0: "rows"}})
    program.verify((torch.ones(5, 3),))
    assert "len" not in globals()

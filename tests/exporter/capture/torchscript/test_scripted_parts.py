"""Eager models that call TorchScript modules and functions."""

import pathlib
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta import torch_onnx


class Halving(nn.Module):
    """Halves rows until they are small: a loop and a branch on values."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, most: int) -> torch.Tensor:
        x = self.scale(x)
        count = 0
        while bool(x.abs().max() > 1.0) and count < most:
            x = x / 2
            count += 1
        if bool(x.sum() > 0):
            x = -x
        return x + count


@torch.jit.script
def add_rows(x: torch.Tensor) -> torch.Tensor:
    total = x[0]
    for i in range(1, x.shape[0]):
        total = total * 0.5 + x[i]
    return total


@torch.jit.script
def add_steps(x: torch.Tensor, count: int, shape: list[int], most: int | None = None) -> torch.Tensor:
    total = torch.zeros(shape)
    for i in range(count):
        if i % 2 == 0:
            total = total + x * float(i)
    return total if most is None else total[:most]


class Calls(nn.Module):
    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.part(x * 2) + x.shape[0]))


class CallsHalving(Calls):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.part(x, 5).sin())


def add_twice(x: torch.Tensor) -> torch.Tensor:
    return add_rows(x) + add_rows(x.exp())


class CallsFunction(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add_twice(x.cos())


class CallsWithSizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        return add_steps(x, rows, [rows, 3]) + add_steps(x.sin(), rows * 2, shape=x.shape, most=rows)


class Scales(nn.Module):
    def forward(self, x: torch.Tensor, factor: int) -> torch.Tensor:
        return x * factor


SEQUENCE = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout()).eval()
MODELS = {
    "scripted": lambda: Calls(torch.jit.script(SEQUENCE)),
    "traced": lambda: Calls(torch.jit.trace(SEQUENCE, torch.randn(2, 3))),
    "control flow": lambda: CallsHalving(torch.jit.script(Halving())),
    "function": CallsFunction,
    "sizes": CallsWithSizes,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("opset", [9, 17])
def test_the_scripted_part_is_lowered(name: str, opset: int) -> None:
    model = MODELS[name]().eval()
    names = list(model.state_dict())
    program = opsetta.export(model, torch.randn(4, 3), opset=opset, dynamic_shapes=({0: "n"},))
    assert list(model.state_dict()) == names
    for rows, factor in ((4, 1.0), (1, -20.0), (7, 9.0)):
        program.verify((torch.randn(rows, 3) * factor,))


def test_the_old_exporter_lowers_it_too(tmp_path: pathlib.Path) -> None:
    model = MODELS["control flow"]().eval()
    file = str(tmp_path / "model.onnx")
    options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    torch_onnx.export(model, (torch.randn(4, 3),), file, dynamo=False, opset_version=13, **options)
    program = opsetta.load(file)
    x = torch.randn(6, 3) * 30
    torch.testing.assert_close(program(x), model(x))


def test_a_decision_of_the_eager_code_is_still_refused() -> None:
    class Decides(Calls):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(x) if x.sum() > 0 else -x

    with pytest.raises(opsetta.CaptureError, match="could not capture"):
        opsetta.export(Decides(torch.jit.script(SEQUENCE)).eval(), torch.randn(4, 3))


def test_a_size_as_a_number_of_a_scripted_method_is_refused() -> None:
    class PassesSize(Calls):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(x, x.shape[0])

    model = PassesSize(torch.jit.script(Scales()))
    with pytest.raises(opsetta.CaptureError, match="scripted method 'forward' takes a size .* 'factor: int'"):
        opsetta.export(model, torch.randn(4, 3), dynamic_shapes=({0: "n"},))


def test_the_first_parameter_of_a_scripted_method_may_have_any_name() -> None:
    class Named(nn.Module):
        def forward(this, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if bool(x.sum() > 1) else x

    model = Calls(torch.jit.script(Named())).eval()
    program = opsetta.export(model, torch.ones(2, 3), opset=11)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        torch.testing.assert_close(program(x), model(x))

"""Inputs and buffers that the model writes to: refused by name, returned, taken as inputs, or dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta

from ..onnxruntime_sessions import open_session


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count[1:] += x[1:]
        self.steps += 1
        return x * self.count + self.steps


def test_mutated_buffers_are_an_error_that_names_them() -> None:
    with pytest.raises(opsetta.MutationError, match=r"(?s)'count'.*'steps'"):
        opsetta.export(Counter(), torch.ones(3))


def test_statistics_in_training_mode_name_eval_as_the_remedy() -> None:
    with pytest.raises(opsetta.MutationError, match=r"(?s)'running_mean'.*Call model.eval\(\) first"):
        opsetta.export(nn.BatchNorm1d(3).train(), torch.ones(2, 3))


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_mutated_buffers_become_outputs(opset: int) -> None:
    model = Counter()
    program = opsetta.export(model, torch.ones(3), opset=opset, mutations="outputs")
    assert program.output_names == ["output", "count_mutated", "steps_mutated"]
    program.verify((torch.tensor([1.0, 2.0, 3.0]),))
    assert model.count.tolist() == [0, 0, 0]
    assert model.steps.item() == 0
    assert program(torch.ones(3)).tolist() == [1.0, 2.0, 2.0]


class Smoothing(nn.Module):
    """A model of a stream: one buffer is assigned, one is written in place, one is only read."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("mean", torch.full((2, 4), 0.5))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = torch.tanh(self.mix(self.mean)) * 0.5 + x
        self.steps += 1
        return self.mean.sum(1) * self.steps * self.scale


@pytest.mark.parametrize("script", [False, True], ids=["eager", "script"])
@pytest.mark.parametrize("opset", [7, 9, 13, 28])
def test_mutated_buffers_become_inputs_and_outputs(opset: int, script: bool, tmp_path: Path) -> None:
    model = Smoothing().eval()
    exported = torch.jit.script(model) if script else model
    program = opsetta.export(exported, torch.ones(2, 4), opset=opset, mutations="state")
    program.verify((torch.randn(2, 4),))
    program.save(tmp_path / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    session = open_session(str(tmp_path / "model.onnx"))
    assert {value.name for value in session.get_overridable_initializers()} == {"mean", "steps"}
    output_names = [value.name for value in session.get_outputs()]
    state: dict[str, np.ndarray] = {}
    for _ in range(3):
        x = torch.randn(2, 4)
        results = dict(zip(output_names, session.run(None, {"x": x.numpy(), **state}), strict=True))
        np.testing.assert_allclose(results["output"], model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
        state = {name: results[f"{name}_mutated"] for name in ("mean", "steps")}


def test_a_saved_graph_keeps_its_state_inputs(tmp_path: Path) -> None:
    program = opsetta.export(Smoothing().eval(), torch.ones(2, 4), mutations="state")
    program.save_source(tmp_path / "model.opsetta")
    model = opsetta.load(tmp_path / "model.opsetta").lower(11).model
    assert [value.name for value in model.graph.inputs] == ["x", "mean", "steps"]


@pytest.mark.parametrize("target", ["mnn", "ncnn", "opencv", "opencv5", "openvino", "tract"])
def test_a_file_has_no_defaults_of_state_that_a_target_reads_as_constants(
    target: str, tmp_path: Path
) -> None:
    model = Replacing().eval()
    with pytest.warns(UserWarning, match="pass 'count' at each call"):
        program = opsetta.export(model, torch.ones(3), mutations="state", target=target)
    program.verify((torch.randn(3),))
    program.save(tmp_path / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    session = open_session(str(tmp_path / "model.onnx"))
    assert [value.name for value in session.get_inputs()] == ["x", "count"]
    assert not session.get_overridable_initializers()
    first = program.model.graph.initializers["count"].const_value
    assert first is not None
    x = torch.randn(3)
    results = session.run(None, {"x": x.numpy(), "count": first.numpy()})
    np.testing.assert_allclose(results[0], model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_mutated_buffers_are_dropped_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="count"):
        program = opsetta.export(Counter(), torch.ones(3), mutations="drop")
    assert program.output_names == ["output"]
    program.verify()


def test_mutated_input_is_named() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        x[0] = 7.0
        return x * 2

    with pytest.raises(opsetta.MutationError, match="'x'"):
        opsetta.export(forward, torch.ones(3))
    x = torch.ones(3)
    program = opsetta.export(forward, x, mutations="outputs")
    assert x.tolist() == [1, 1, 1]
    assert program.output_names == ["output", "x_mutated"]
    program.verify()
    assert x.tolist() == [1, 1, 1]


def test_writing_to_a_fresh_tensor_is_no_mutation() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(3, 2)
        y[:, 0] = x
        y[1:].mul_(2)
        return y.t().contiguous().add_(1)

    opsetta.export(forward, torch.ones(3), opset=9).verify((torch.randn(3),))


def test_batch_norm_in_eval_mutates_nothing_and_in_training_is_named() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    opsetta.export(model.eval(), torch.randn(2, 3, 8, 8)).verify()
    with pytest.raises(opsetta.MutationError, match=r"running_mean"):
        opsetta.export(model.train(), torch.randn(2, 3, 8, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    program = opsetta.export(model, torch.randn(2, 3, 8, 8), mutations="outputs", opset=13)
    program.verify()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name])


class Replacing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + x
        held, self.scale = self.scale, self.scale * 2
        result = self.count * self.scale
        self.scale = held
        return result


def test_a_replaced_buffer_of_a_submodule_is_named_in_a_warning() -> None:
    model = nn.Sequential(Replacing()).eval()
    with pytest.warns(UserWarning, match=r"buffer '0\.count'.*mutations='outputs'") as found:
        program = opsetta.export(model, torch.ones(3))
    assert not any("scale" in str(each.message) for each in found)
    assert found[0].filename == __file__
    assert program(torch.ones(3)).tolist() == program(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert model[0].count.tolist() == [0, 0, 0]


def test_a_replaced_buffer_of_the_model_itself_is_a_mutation() -> None:
    with pytest.raises(opsetta.MutationError, match="'count'"):
        opsetta.export(Replacing().eval(), torch.ones(3))


class Moving(nn.Module):
    """Moves a buffer to the device and type that it already has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table.to(device=x.device, dtype=x.dtype)
        return x + self.table


@pytest.mark.parametrize("capture", ["direct", "torch.export", "trace"])
def test_a_buffer_that_stays_where_it_is_is_no_mutation(capture: str) -> None:
    program = opsetta.export(Moving(), torch.ones(2, 3), capture=capture)
    assert program.output_names == ["output"]
    program.verify((torch.full((2, 3), 5.0),))


def test_a_buffer_of_another_type_is_a_mutation() -> None:
    with pytest.raises(opsetta.MutationError, match="'table'"):
        opsetta.export(Moving(), torch.ones(2, 3, dtype=torch.float64))

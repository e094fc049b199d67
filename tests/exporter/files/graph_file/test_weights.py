"""Weights in a source file, beside it, and left out of it."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.files.graph_file.equality import difference


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(20, 30).to(torch.bfloat16)
        self.register_buffer("shift", torch.arange(30.0))
        self.register_buffer("mask", torch.ones(30), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        return self.linear(x).float() * self.mask + self.shift + table.sum()


@pytest.fixture(scope="module")
def program() -> opsetta.Program:
    torch.manual_seed(0)
    return opsetta.export(Model().eval(), torch.ones(2, 20, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def state(program: opsetta.Program) -> dict[str, torch.Tensor]:
    return dict(program._calls.module().state_dict())


def test_external_weights_are_beside_the_file(program: opsetta.Program, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    program.save_source(path, weights="external")
    names = sorted(item.name for item in tmp_path.iterdir())
    assert len(names) == 2
    assert re.fullmatch(r"model\.onnx\.[0-9a-f]{16}\.data", names[1])
    loaded = opsetta.load(path)
    assert difference(program._capture, loaded._capture) is None
    loaded.save_source(path, weights="external")
    again = opsetta.load(path)
    assert difference(program._capture, again._capture) is None
    assert again.lower(13).model_proto == program.lower(13).model_proto
    assert sorted(item.name for item in tmp_path.iterdir()) == names
    again.save_source(path)
    assert [item.name for item in tmp_path.iterdir()] == ["model.onnx"]
    assert difference(program._capture, again._capture) is None


@pytest.mark.parametrize("change", ["missing", "short", "outside", "absolute"])
def test_external_weights_that_are_not_there_are_refused(
    change: str, program: opsetta.Program, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "model.onnx"
    program.save_source(path, weights="external")
    [data] = tmp_path.glob("*.data")
    if change == "missing":
        data.unlink()
    elif change == "short":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        model = onnx.load_model(path, load_external_data=False)
        located = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
        (tmp_path / "inner").mkdir()
        located[0].external_data[0].value = f"../{data.name}" if change == "outside" else str(data)
        path = tmp_path / "inner" / "model.onnx"
        path.write_bytes(model.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match=r"linear\.weight"):
        opsetta.load(path)


@pytest.mark.parametrize("form", ["binary", "text", "json"])
def test_weights_that_are_left_out_are_given_again(
    form: str, program: opsetta.Program, state: dict[str, torch.Tensor], tmp_path: pathlib.Path
) -> None:
    path, whole = tmp_path / "model", tmp_path / "whole"
    program.save_source(path, weights="none", format=form)
    program.save_source(whole, weights="external")
    for weights in (state, whole, {name: item.float().numpy() for name, item in state.items()}):
        given: Any = weights
        if isinstance(weights, dict) and isinstance(weights["shift"], np.ndarray):
            import ml_dtypes

            given = {n: a if n == "shift" else a.astype(ml_dtypes.bfloat16) for n, a in weights.items()}
        loaded = opsetta.load(path, weights=given)
        assert difference(program._capture, loaded._capture) is None
        loaded.save_source(tmp_path / "again", weights="none", format=form)
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_archive_of_arrays_has_weights(tmp_path: pathlib.Path) -> None:
    model = nn.Linear(2, 3).eval()
    program = opsetta.export(model, torch.ones(1, 2))
    program.save_source(tmp_path / "model", weights="none")
    np.savez(tmp_path / "weights.npz", **{name: item.numpy() for name, item in model.state_dict().items()})
    loaded = opsetta.load(tmp_path / "model", weights=tmp_path / "weights.npz")
    assert difference(program._capture, loaded._capture) is None
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(opsetta.ModelFileError, match=r"weights\.pt"):
        opsetta.load(tmp_path / "model", weights=tmp_path / "weights.pt")


def test_missing_and_changed_weights_are_named(
    program: opsetta.Program, state: dict[str, torch.Tensor], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "model"
    program.save_source(path, weights="none")
    assert b"mask" in path.read_bytes()
    with pytest.raises(opsetta.ModelFileError, match=r"3 weights: 'linear\.weight'.*pass weights="):
        opsetta.load(path)
    given = {**state, "shift": state["shift"] + 1}
    with pytest.raises(opsetta.ModelFileError, match="1 weight changed.*'shift' has other contents"):
        opsetta.load(path, weights=given)
    given = {**state, "linear.weight": state["linear.weight"].float()}
    with pytest.raises(opsetta.ModelFileError, match=r"'linear.weight' is FLOAT\[30, 20\], and was BFLOAT16"):
        opsetta.load(path, weights=given)
    given["linear.weight"] = state["linear.weight"].t()
    del given["shift"]
    with pytest.raises(opsetta.ModelFileError, match=r"(?s)'shift'.*'linear.weight' is BFLOAT16\[20, 30\]"):
        opsetta.load(path, weights=given)
    with pytest.raises(opsetta.ModelFileError, match="'shift' is a list"):
        opsetta.load(path, weights={**state, "shift": [1.0]})

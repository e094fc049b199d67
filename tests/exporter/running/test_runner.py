"""One runner binds, checks and runs for every class that runs a model: all refuse the same call alike."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.running.runner import Runner


class Halves(nn.Module):
    """Valid for even widths; returns two tensors, one of them complex."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        halves = x.reshape(x.shape[0], 2, -1)
        return halves.sum(1), torch.complex(halves[:, 0], halves[:, 1])


X = torch.arange(12.0).reshape(2, 6)


@pytest.fixture(scope="module")
def program() -> opsetta.Program:
    return opsetta.export(Halves().eval(), (X,), opset=17, dynamic_shapes={"x": {0: "batch"}})


@pytest.fixture(scope="module")
def path(program: opsetta.Program, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("runner") / "halves.onnx"
    program.save(file)
    return file


def _runs(program: opsetta.Program, path: pathlib.Path) -> dict[str, Callable[[Any], Any]]:
    return {
        "program": program,
        "file": opsetta.load(path),
        "arrays": lambda x: opsetta.load(path).run({"x": x}),
        "stream": lambda x: opsetta.run_streaming(path, x),
        "session": lambda x: Runner.of_file(path).arrays({"x": x}),
    }


@pytest.mark.parametrize("way", ["program", "file", "arrays", "stream", "session"])
def test_every_class_runs_and_refuses_alike(program: opsetta.Program, path: pathlib.Path, way: str) -> None:
    run = _runs(program, path)[way]
    total, pairs = run(X[:1])
    assert np.array_equal(np.asarray(total), X[:1].reshape(1, 2, 3).sum(1))
    pairs = torch.view_as_real(pairs) if isinstance(pairs, torch.Tensor) and pairs.is_complex() else pairs
    assert np.array_equal(np.asarray(pairs), np.stack([X[:1, :3], X[:1, 3:]], -1))
    with pytest.raises(opsetta.DimensionError, match=r"'x' must have the shape \[batch, 6\], not \[2, 4\]"):
        run(X[:, :4])
    with pytest.raises(opsetta.UsageError, match="'x' must have elements of float32, not float64"):
        run(X.double())


def test_complex_outputs_are_verified(program: opsetta.Program) -> None:
    report = program.verify((X[:1],))
    assert [output.within_tolerance for output in report.outputs] == [True, True]


def test_a_file_is_not_verified_against_a_model_with_fewer_results(path: pathlib.Path) -> None:
    loaded = opsetta.load(path)
    assert isinstance(loaded, opsetta.OnnxModel)
    with pytest.raises(opsetta.OpsettaError, match="the model has 2 outputs, but 1 are expected"):
        loaded.verify((X,), model=lambda x: x.reshape(2, 2, 3).sum(1))

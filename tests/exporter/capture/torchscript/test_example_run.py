"""A TorchScript program runs on its example first: what PyTorch refuses is reported as the model's error."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.capture.torchscript.example_run import check_example
from opsetta.exporter.command_line import cli
from tests.exporter.torch_boundary.process_snapshot import changes, model_snapshot
from tests.fuzz.submodule_programs import KINDS, WIDTH, script


def traced(module: nn.Module, *args: torch.Tensor) -> Any:
    return torch.jit.trace(module.eval(), args)


CONVOLUTION = traced(nn.Conv1d(3, 4, 2), torch.randn(1, 3, 8))
LINEAR = script(nn.Linear(4, 2))
EMBEDDING = traced(nn.Embedding(5, 3), torch.tensor([1, 2]))
NORM = script(nn.BatchNorm2d(3).eval())
LSTM = traced(nn.LSTM(3, 4), torch.randn(2, 1, 3))
DROPOUT = script(nn.Sequential(nn.Dropout(), nn.Linear(4, 2)))


@torch.jit.script
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, y)


@torch.jit.script
def joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(parts)


WRONG: dict[str, tuple[Any, tuple, str]] = {
    "channels": (CONVOLUTION, (torch.randn(1, 2, 8),), r"input: float32\[1, 2, 8\].*to have 3 channels"),
    "rank": (CONVOLUTION, (torch.randn(8),), r"input: float32\[8\]"),
    "integers": (CONVOLUTION, (torch.ones(1, 3, 8).long(),), r"input: int64\[1, 3, 8\].*expected .*type"),
    "doubles": (LINEAR, (torch.randn(2, 4).double(),), r"same dtype, but got Double and Float"),
    "features": (LINEAR, (torch.randn(2, 5),), r"shapes cannot be multiplied \(2x5 and 4x2\)"),
    "number for a tensor": (LINEAR, (3,), r"input: 3\).*value of type 'Tensor'"),
    "fractions as indices": (EMBEDDING, (torch.randn(2),), r"one of the following scalar types: Long, Int"),
    "index out of range": (EMBEDDING, (torch.tensor([5]),), r"index out of range"),
    "rank of a normalization": (NORM, (torch.randn(2, 3),), r"expected 4D input \(got 2D input\)"),
    "recurrent features": (LSTM, (torch.randn(2, 1, 5),), r"input: float32"),
    "function": (product, (torch.randn(2, 3), torch.randn(2, 3)), r"x: float32\[2, 3\], y: float32\[2, 3\]"),
    "list": (joined, ([torch.randn(2, 3), torch.randn(2, 4)],), r"parts\[1\]: float32\[2, 4\]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_that_the_model_refuses_are_its_error(case: str) -> None:
    model, args, message = WRONG[case]
    with torch.no_grad():
        try:
            model(*args)
        except Exception:
            with pytest.raises(opsetta.CaptureError, match="fails in PyTorch itself") as raised:
                opsetta.export(model, args)
            assert re.search(message, str(raised.value)), str(raised.value)
        else:
            # A trace of an LSTM does not check the features of its input.
            assert case == "recurrent features"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith(("traced in", "scripted"))])
@pytest.mark.parametrize("shape", [(2, WIDTH), (2, WIDTH + 1)], ids=["runs", "fails"])
def test_the_run_leaves_the_model_as_it_was(kind: str, shape: tuple[int, ...]) -> None:
    model, args = KINDS[kind](), (torch.randn(shape),)
    before = model_snapshot(model, args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            opsetta.export(model, args, mutations="drop")
        except opsetta.OpsettaError:
            assert shape[1] != WIDTH
    assert changes(before, model_snapshot(model, args)) == []


def test_the_run_writes_neither_to_weights_nor_to_arguments_nor_draws_numbers() -> None:
    @torch.jit.script
    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    class Decays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.mul_(0.5)
            return x * self.weight

    for model in (writes, script(Decays()), DROPOUT):
        args = (torch.ones(2, 4),)
        before = model_snapshot(model, args)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opsetta.export(model, args, mutations="drop")
        assert changes(before, model_snapshot(model, args)) == []


def test_the_command_reports_the_models_error(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "model.pt"
    CONVOLUTION.save(path)
    target = tmp_path / "model.onnx"
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", str(path), "-o", str(target), "--input", "float32[1,2,8]"])
    assert "to have 3 channels" in " ".join(f"{ended.value.code} {capsys.readouterr()}".split())
    assert not target.exists()


def test_a_program_that_writes_files_is_not_run(tmp_path: Any) -> None:
    path = tmp_path / "written"
    graph = """
        graph(%self, %x : Tensor):
            %path : str = prim::Constant[value="{path}"]()
            aten::save(%x, %path)
            return (%x)"""
    with pytest.raises(opsetta.CaptureError, match=r"reads or writes files \(aten::save\)"):
        check_example(_Program(graph.format(path=path)), {}, (torch.randn(2),), {})
    assert not path.exists()


class _Program:
    """What `check_example` reads of a `ScriptFunction`; Python code cannot be scripted to this operator."""

    def __init__(self, text: str) -> None:
        self.inlined_graph = torch._C.parse_ir(text)

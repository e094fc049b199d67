"""`capture=` chooses how a model is captured, and leaves everything as it was, also after a failure."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.command_line.application import make_application
from opsetta.exporter.export_model import capture_model

from .torch_boundary.process_snapshot import changes, snapshot

X = torch.arange(6.0).reshape(2, 3)


class Fails(nn.Module):
    """Writes to its state, and raises an error in the middle of its forward."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.norm = nn.BatchNorm1d(3)
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        self.seen.append(y)
        self.last = y
        with torch.autocast("cpu"), torch.enable_grad():
            raise self.error


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Import what a first export imports, which may set up loggers and settings of its own."""
    for way in ("torch.export", "strict"):
        opsetta.export(nn.Linear(3, 3).eval(), X, capture=way)


def chooses(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("way", ["auto", "direct", "torch.export", "strict", "trace"])
def test_every_way_captures_a_plain_model(way: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    before = snapshot(model, X)
    program = opsetta.export(model, X, opset=13, capture=way)
    assert changes(before, snapshot(model, X)) == []
    program.verify()


def with_tensors_of_sizes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = x.shape
    grid = torch.tensor([[rows, 2], [columns, 1]], dtype=torch.float32)
    return torch.tensor(rows) + 1, torch.tensor([rows, 0.5]), grid, torch.tensor([1, 2])


def test_a_trace_follows_tensors_made_of_sizes() -> None:
    sizes = ({0: "rows", 1: "columns"},)
    program = opsetta.export(with_tensors_of_sizes, X, opset=13, capture="trace", dynamic_shapes=sizes)
    assert not program.specializations
    for shape in ((2, 3), (5, 1)):
        program.verify((torch.randn(shape),))


def test_a_trace_takes_keyword_arguments_and_follows_the_example() -> None:
    program = opsetta.export(chooses, X, opset=13, capture="trace")
    assert torch.equal(program(X), X + 1)
    assert torch.equal(program(-X), -X + 1)
    named = opsetta.export(nn.Linear(3, 3).eval(), (), {"input": X}, capture="trace")
    named.verify()


def test_auto_leaves_to_torch_export_what_direct_capture_refuses() -> None:
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval())
    with pytest.raises(opsetta.CaptureError, match="torch.fx.GraphModule"):
        opsetta.export(model, X, capture="direct")
    found = capture_model(model, X, {}, CaptureOptions())
    assert isinstance(found.exported, torch.export.ExportedProgram)
    opsetta.export(model, X).verify()


def test_auto_is_direct_capture_where_it_serves() -> None:
    captured = capture_model(nn.Linear(3, 3).eval(), X, {}, CaptureOptions())
    assert not isinstance(captured.exported, torch.export.ExportedProgram)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"capture": "directly"}, "'auto', 'direct', 'torch.export', 'strict', 'trace', not 'directly'"),
        ({"capture": "direct", "strict": True}, "strict=True means capture='strict'"),
    ],
)
def test_unknown_and_contradicting_choices_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(opsetta.UsageError, match=words):
        opsetta.export(nn.Linear(3, 3), X, **options)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_nothing_changes_if_direct_capture_fails(error: BaseException) -> None:
    model = Fails(error).eval()
    expected = opsetta.CaptureError if isinstance(error, Exception) else type(error)
    before = snapshot(model, X)
    with pytest.raises(expected):
        opsetta.export(model, X, capture="direct")
    assert changes(before, snapshot(model, X)) == []


def test_the_message_names_the_way_and_the_line() -> None:
    with pytest.raises(opsetta.CaptureError, match="direct capture could not capture") as raised:
        opsetta.export(chooses, X, capture="direct")
    assert "if x.sum() > 0 else x - 1" in str(raised.value)


def test_the_command_line_takes_the_choice(tmp_path: pathlib.Path) -> None:
    factory = tmp_path / "factory.py"
    factory.write_text("import torch\ndef make():\n    return torch.nn.ReLU(), (torch.ones(2),)\n")
    output = tmp_path / "model.onnx"
    result = CliRunner().invoke(
        make_application(), ["export", f"{factory}:make", "-o", str(output), "--capture", "direct"]
    )
    assert result.exit_code == 0, result.output
    refused = CliRunner().invoke(
        make_application(), ["export", f"{factory}:make", "-o", str(output), "--capture", "x"]
    )
    assert refused.exit_code != 0

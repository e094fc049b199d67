"""A decision of a random example is no model: outputs that it makes constant are refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta import torch_onnx


class Detector(nn.Module):
    """Returns boxes with a score, and empty tensors if there are none; `features` are always computed."""

    def __init__(self, threshold: float, has_features: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.threshold = threshold
        self.has_features = has_features

    def forward(self, x: torch.Tensor) -> Any:
        scores = self.head(x).sigmoid().flatten()
        boxes, confidences = x * 2, scores
        if scores.max() <= self.threshold:
            boxes, confidences = torch.zeros(0, 4), torch.zeros(0)
        return (boxes, confidences, scores * 3) if self.has_features else (boxes, confidences)


class Gated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else torch.ones(3)


class Selected(nn.Module):
    """Returns rows by their indices, as after a suppression of boxes; else another result."""

    def __init__(self, empty: Any) -> None:
        super().__init__()
        self.empty = empty

    def forward(self, x: torch.Tensor) -> Any:
        rows = (x[:, 0] > 5).nonzero().flatten()
        return (x[rows], x[rows, 0]) if self.has_rows(x, rows) else self.empty(x)

    def has_rows(self, x: torch.Tensor, rows: torch.Tensor) -> Any:
        """A decision on values, unlike one on the number of rows."""
        return x[:, 0].max() > 5


class SelectedByCount(Selected):
    def has_rows(self, x: torch.Tensor, rows: torch.Tensor) -> Any:
        return len(rows)


class Anchored(nn.Module):
    """Has an output that is constant in PyTorch, too."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + 1 if x.sum() > 0 else x), torch.arange(4)


X = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Detector(2.0), (X,)),
        (Detector(2.0, has_features=True), (X,)),
        (Gated(), (-torch.ones(3),)),
        (Selected(lambda x: (torch.zeros_like(x), torch.full_like(x[:, 0], 2.0))), (X,)),
        (Selected(lambda x: (x[:0], x.sum())), (X,)),
        (Selected(lambda x: (torch.zeros(3, 4).type_as(x), torch.ones(x.shape[0]))), (X,)),
    ],
    ids=[
        "no detections",
        "beside features",
        "constant branch",
        "like the input",
        "empty slice",
        "sizes and types of the input",
    ],
)
def test_a_path_without_inputs_is_refused_and_writes_nothing(
    model: nn.Module, args: Any, tmp_path: Any
) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(opsetta.CaptureError, match="depend on no input.*decisions") as raised:
        torch_onnx.export(model.eval(), args, path, dynamo=False)
    assert "Pass an example that takes the usual path" in str(raised.value)
    with torch_onnx.replaced(), pytest.raises(torch.onnx.OnnxExporterError, match="depend on no input"):
        torch.onnx.utils.export(model.eval(), args, str(path))
    assert not path.exists()


def test_rows_are_selected_where_the_other_branch_returns_none(tmp_path: Any) -> None:
    model, path = SelectedByCount(lambda x: (x.new_zeros(0, 4), x.new_zeros(0))), tmp_path / "model.onnx"
    torch_onnx.export(model, (X,), path, dynamo=False)
    program = opsetta.load(path)
    for x in (X, X * 9):
        torch.testing.assert_close(tuple(program(x)), model(x))


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Detector(-1.0), (X,)),
        (Detector(-1.0, has_features=True), (X,)),
        (Gated(), (X,)),
        (Anchored(), (X,)),
        (Selected(lambda x: (x[:0], x[:0, 0])), (X * 9,)),
        (Selected(lambda x: (x.new_full((2, 4), 1.0) * x, x[:, 0])), (X,)),
    ],
)
def test_other_paths_of_the_example_are_exported(model: nn.Module, args: Any) -> None:
    torch_onnx.export(model.eval(), args, io.BytesIO(), dynamo=False)


def test_a_model_of_constants_alone_is_exported() -> None:
    torch_onnx.export(lambda x: torch.arange(3), (X,), io.BytesIO(), dynamo=False)


def test_an_empty_file_of_torch_is_not_in_the_way(tmp_path):
    path = tmp_path / "model.onnx"
    (tmp_path / "model.onnx.data").touch()
    model = torch.nn.Linear(300, 300).eval()
    torch_onnx.export(model, (torch.randn(1, 300),), path, external_data=True)
    x = torch.randn(1, 300)
    torch.testing.assert_close(opsetta.load(path)(x), model(x))
    (tmp_path / "other.onnx.data").write_bytes(b"1")
    with pytest.raises(opsetta.OpsettaError, match="exists already"):
        torch_onnx.export(model, (x,), tmp_path / "other.onnx", external_data=True)

"""Files: whole or not at all, inline or with external data, and what cannot be written."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.files import writing
from opsetta.exporter.files.weights.message import Message


def program(opset: int = 18) -> opsetta.Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 4)).eval()
    return opsetta.export(model, torch.ones(2, 40), opset=opset)


def run(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": np.ones((2, 40), dtype=np.float32)})[0]


@pytest.mark.parametrize("opset", [7, 18])
def test_message_holds_what_protobuf_would_write(opset: int) -> None:
    made = program(opset)
    buffer = io.BytesIO()
    made.save(buffer)
    assert len(buffer.getvalue()) == Message.of(made.model).size
    written, expected = onnx.load_from_string(buffer.getvalue()), made.model_proto
    for proto in (written, expected):
        # onnx_ir repeats the types of initializers as value_info.
        del proto.graph.value_info[:]
        tensors = sorted(proto.graph.initializer, key=lambda tensor: tensor.name)
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(tensors)
    assert written == expected


def test_order_of_initializers_stays_after_saving() -> None:
    made = program()
    before = list(made.model.graph.initializers)
    made.save(io.BytesIO())
    assert list(made.model.graph.initializers) == before


@pytest.mark.parametrize("external", [False, True])
def test_saved_file_runs(tmp_path: Path, external: bool) -> None:
    made = program()
    made.save(tmp_path / "model.onnx", external_data=external)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [re.sub(r"[0-9a-f]{16}", "DIGEST", name) for name in names] == [
        "model.onnx",
        *["model.onnx.DIGEST.data"] * external,
    ]
    torch.testing.assert_close(torch.from_numpy(run(tmp_path / "model.onnx")), made(torch.ones(2, 40)))
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)


def test_external_data_by_itself_above_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "INLINE_LIMIT", 2000)
    made = program()
    made.save(tmp_path / "model.onnx")
    [_] = tmp_path.glob("model.onnx.*.data")
    made.verify()
    with pytest.raises(opsetta.ModelFileError, match="external_data"):
        made.save(tmp_path / "inline.onnx", external_data=False)
    assert not (tmp_path / "inline.onnx").exists()


def test_tied_and_strided_weights_are_written_in_order(tmp_path: Path) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(30, 40).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    model = Strided().eval()
    made = opsetta.export(model, torch.ones(2, 40))
    made.verify()
    for external in (False, True):
        made.save(tmp_path / "model.onnx", external_data=external)
        [weight] = onnx.load(tmp_path / "model.onnx").graph.initializer
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), model.weight.detach().numpy())


@pytest.mark.parametrize(
    ("target", "options", "text"),
    [
        ("missing/model.onnx", {}, "folder"),
        (".", {}, "folder"),
        (3, {}, "int"),
        (io.StringIO(), {}, "binary"),
        (io.BytesIO(), {"external_data": True}, "path"),
    ],
    ids=["no folder", "a folder", "a number", "text file", "external data in a file object"],
)
def test_target_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: object, options: dict, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(opsetta.ModelFileError, match=text):
        program().save(target, **options)
    assert list(tmp_path.iterdir()) == []


def test_failure_midway_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def fail(self: Message, file: io.BufferedIOBase) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Message, "write", fail)
    with pytest.raises(opsetta.ModelFileError, match="No space left"):
        program().save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_the_whole_message_counts_not_the_weights_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program()
    weights = sum(value.const_value.nbytes for value in made.model.graph.initializers.values())
    monkeypatch.setattr(writing, "INLINE_LIMIT", weights)
    made.save(tmp_path / "model.onnx")
    [_] = tmp_path.glob("model.onnx.*.data")
    made.verify()

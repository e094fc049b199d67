"""`OnnxModel` is called with arrays or tensors, and verified against its original or a PyTorch model."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import parser

import opsetta
from opsetta.exporter.onnx_model import OnnxModel

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x, float b, int64[2] i) => (float[n, 4] sum, int64[2] twice) <float[4] w = {1, 2, 3, 4}> {
    weighted = Mul(x, w)
    sum = Add(weighted, b)
    twice = Add(i, i)
}"""
WEIGHTS = torch.tensor([1.0, 2, 3, 4])


@pytest.fixture
def model(tmp_path: Any) -> OnnxModel:
    onnx.save(parser.parse_model(TEXT), tmp_path / "m.onnx")
    loaded = opsetta.load(tmp_path / "m.onnx")
    assert isinstance(loaded, OnnxModel)
    return loaded


def eager(x: torch.Tensor, b: Any, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * WEIGHTS + b, 2 * i


def test_arrays_give_arrays_and_tensors_give_tensors(model):
    x, i = np.ones((3, 4), np.float32), np.array([1, 2])
    total, twice = model(x, 1, i)
    assert isinstance(total, np.ndarray)
    np.testing.assert_array_equal(total[0], [2, 3, 4, 5])
    np.testing.assert_array_equal(twice, [2, 4])
    total, twice = model(torch.from_numpy(x), i=i, b=1)
    assert isinstance(total, torch.Tensor)
    assert isinstance(twice, torch.Tensor)
    torch.testing.assert_close(total, eager(torch.from_numpy(x), 1, torch.tensor([1, 2]))[0])


def test_a_lone_output_comes_by_itself():
    text = '<ir_version: 8, opset_import: ["": 17]> g (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }'
    lone = OnnxModel(ir.from_proto(parser.parse_model(text)))
    x = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert torch.equal(lone(x), x)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "'x' is missing; 'b' is missing; 'i' is missing"),
        ((1, 2, 3, 4), {}, "4 arguments are passed"),
        ((1, 2, 3), {"x": 1}, "'x' is passed twice"),
        ((1, 2, 3), {"y": 1}, r"inputs \('x', 'b', 'i'\): there is no input 'y'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(model, args, kwargs, text):
    with pytest.raises(opsetta.OpsettaError, match=text):
        model(*args, **kwargs)
    with pytest.raises(opsetta.OpsettaError, match=text):
        model.lower(9).verify(args, kwargs)


def test_a_converted_model_is_verified_against_its_original(model):
    args = (np.ones((3, 4), np.float32), 0.5, np.array([1, 2]))
    report = model.lower(9).verify(args)
    assert [entry.name for entry in report.outputs] == ["sum", "twice"]
    assert report.max_absolute_error == 0
    with pytest.raises(opsetta.OpsettaError, match="nothing to compare it with"):
        model.verify(args)
    wrong = model.lower(9)
    wrong.model.graph.initializers["w"].const_value = ir.tensor(np.array([1, 2, 3, 5], np.float32))
    with pytest.raises(opsetta.VerificationError, match=r"'sum' differs from the original .*index \[0, 3\]"):
        wrong.verify(args)


def test_a_file_is_verified_against_a_pytorch_model(model):
    args = (torch.ones(3, 4), 0.5, torch.tensor([1, 2]))
    assert model.verify(args, model=eager).max_absolute_error == 0
    assert model.lower(28).verify(args, model=eager).max_absolute_error == 0
    with pytest.raises(opsetta.VerificationError, match="'twice' differs from eager PyTorch"):
        model.verify(args, model=lambda x, b, i: (x * WEIGHTS + b, i))
    with pytest.raises(opsetta.OpsettaError, match="the model itself fails"):
        model.verify(args, model=lambda x, b, i: x.no_such_method())


def test_verifying_needs_no_torch(model, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, opsetta\n"
        "model = opsetta.load(sys.argv[1]).lower(11)\n"
        "report = model.verify((np.ones((2, 4), np.float32), 1, np.array([3, 4])))\n"
        "assert report.max_absolute_error == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.onnx"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr

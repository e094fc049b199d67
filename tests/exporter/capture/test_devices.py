"""Models whose weights and inputs are fake tensors of a GPU: no GPU is needed, only `weights=`."""

import json
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.cuda.amp import common
from torch.nn import functional
from torch.utils import _pytree

import opsetta
from opsetta.exporter.torch_boundary.fake_tensors import FakeTensorMode

from ...gpu.fake_models import on_fake_gpu


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype).unsqueeze(1)
        return self.norm(x + attended.transpose(1, 2).flatten(2)) + places


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        offsets = torch.tensor([1.0, 2.0, 3.0], device=x.device)
        return x * self.scale + offsets + torch.tensor([[0.5]]).to(x.device)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cuda", dtype=torch.float16):
            y = self.first(x)
            with torch.autocast("cuda", enabled=False):
                z = self.second(y.float())
            return y, torch.softmax(z, -1)


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2, 2), nn.MaxPool2d(2)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 4), (2, 8)),
    "half": (lambda: nn.Linear(8, 4).half(), (2, 8)),
    "images": (_images, (2, 3, 8, 8)),
    "attention": (Attention, (2, 5, 8)),
    "constants": (Constants, (2, 3)),
    "lstm": (lambda: nn.LSTM(8, 4, 2, bidirectional=True), (5, 2, 8)),
    "gru-cell": (lambda: nn.GRUCell(8, 4), (2, 8)),
}


def _assert_equal(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    pairs = zip(_pytree.tree_leaves(actual), _pytree.tree_leaves(expected), strict=True)
    for result, tensor in pairs:
        torch.testing.assert_close(result, tensor, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_computes_as_on_the_cpu(name: str) -> None:
    build, shape = MODELS[name]
    torch.manual_seed(0)
    model = build().eval()
    inputs = torch.randn(shape, dtype=next(model.parameters(), torch.zeros(())).dtype)
    gpu_model, gpu_inputs = on_fake_gpu(model, inputs)
    before = dict(gpu_model.named_parameters())
    program = opsetta.export(gpu_model, (gpu_inputs,), opset=13, weights=model.state_dict())
    assert all(before[key] is tensor for key, tensor in gpu_model.named_parameters())
    with torch.no_grad():
        _assert_equal(program(inputs), model(inputs), 1e-3 if name == "half" else 1e-5)


def test_takes_free_sizes() -> None:
    model = _images().eval()
    x = torch.randn(2, 3, 8, 8)
    gpu_model, gpu_x = on_fake_gpu(model, x)
    dynamic = ({0: "batch", 2: "height"},)
    program = opsetta.export(gpu_model, (gpu_x,), weights=model.state_dict(), dynamic_shapes=dynamic)
    for shape in ((1, 3, 12, 8), (5, 3, 8, 8)):
        x = torch.randn(shape)
        with torch.no_grad():
            _assert_equal(program(x), model(x))


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast of GPUs disables itself on machines without one."""
    monkeypatch.setattr(common, "amp_definitely_not_available", lambda: False)


def _of_autocast(program: opsetta.Program) -> list[str]:
    types = {value.name: value.dtype for node in program.model.graph for value in node.outputs}
    products = [node for node in program.model.graph if node.op_type in ("Gemm", "MatMul")]
    return [types[node.outputs[0].name].name for node in products]


def test_keeps_the_types_of_autocast(pretended_gpu: None) -> None:
    model = Autocast().eval()
    x = torch.randn(2, 8)
    gpu_model, gpu_x = on_fake_gpu(model, x)
    program = opsetta.export(gpu_model, (gpu_x,), opset=13, weights=model.state_dict())
    assert _of_autocast(program) == ["FLOAT16", "FLOAT"]
    _assert_equal(program(x)[0], model.first.half()(x.half()), 1e-3)


def test_lowers_a_program_of_a_gpu_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Autocast().eval()
    x = torch.randn(2, 8)
    gpu_model, gpu_x = on_fake_gpu(model, x)
    mode = gpu_x.fake_mode
    with monkeypatch.context() as patch, mode, torch.no_grad():
        patch.setattr(common, "amp_definitely_not_available", lambda: False)
        exported = torch.export.export(gpu_model, (gpu_x,))
    exported.state_dict.update(model.state_dict())
    program = opsetta.export(exported, opset=13)
    assert _of_autocast(program) == ["FLOAT16", "FLOAT"]


def test_reads_a_file_of_a_gpu_without_one(tmp_path: pathlib.Path) -> None:
    model = nn.BatchNorm1d(4).eval()
    x = torch.randn(3, 4)
    path, gpu_path = tmp_path / "program.pt2", tmp_path / "gpu.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    on_cpu, on_gpu = {"type": "cpu", "index": None}, {"type": "cuda", "index": 0}
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(gpu_path, "w") as gpu_archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".json"):
                content = content.replace(json.dumps(on_cpu).encode(), json.dumps(on_gpu).encode())
            gpu_archive.writestr(name, content)
    assert b'"cuda"' in gpu_path.read_bytes()
    program = opsetta.export(gpu_path, opset=9)
    _assert_equal(program(x), model(x))


def test_refuses_several_devices() -> None:
    model = nn.Linear(8, 4)
    x = torch.randn(2, 8)
    gpu_model, gpu_x = on_fake_gpu(model, x)
    message = r"several devices: input 'input' on cpu, 'weight' on cuda:0"
    with pytest.raises(opsetta.CaptureError, match=message):
        opsetta.export(gpu_model, (x,), weights=model.state_dict())
    with FakeTensorMode():
        on_cpu = torch.empty(2, 8)
    with pytest.raises(opsetta.CaptureError, match="input 'input' on cpu, input 'other' on cuda:0"):
        opsetta.export(_Sum(), (on_cpu, gpu_x))


class _Sum(nn.Module):
    def forward(self, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return input + other

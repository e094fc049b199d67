"""The runtime in C: compiled with warnings as errors, it agrees with onnxruntime."""

import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.devices.plan.application import SOURCES, supported_operators
from opsetta.registration import PlanError
from tests.exporter.training.models import Block, Perceptron

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler `cc`")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.forward_layer = nn.LSTM(6, 5, batch_first=True)
        self.both_layer = nn.LSTM(5, 4, bidirectional=True, batch_first=True)

    def forward(self, x):
        states, (last, _) = self.both_layer(self.forward_layer(self.words(x))[0])
        return states.log_softmax(-1), last.exp()


class Residual(nn.Module):
    """Strided, grouped and dilated convolutions, pooling, splits and concatenations."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.norm, self.line = nn.BatchNorm2d(8), nn.Conv1d(8, 4, 3)
        self.norm.running_mean.uniform_()

    def forward(self, x):
        x = nn.functional.hardswish(self.first(x))
        y = self.norm(self.second(x)) + x
        left, right = y.split([3, 5], 1)
        y = torch.cat([right.clamp(-0.5, 0.5), nn.functional.leaky_relu(left)], 1)
        pooled = nn.functional.max_pool2d(y, 3, 2, 1) - nn.functional.avg_pool2d(y, 3, 2, 1)
        rows = self.line(pooled.flatten(2)[:, :, 1::2])
        return rows.transpose(1, 2), nn.functional.adaptive_avg_pool2d(y, 1), pooled.amax(-1)


class Masks(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, x.T.reshape(3, 4) * 2.0).softmax(0), x[:, [2, 0]].expand(2, 3, 2)


MODELS = {
    "mlp": (Perceptron, (torch.linspace(-1, 1, 18).reshape(3, 6),)),
    "cnn": (Residual, (torch.linspace(-1, 1, 3 * 17 * 14).sin().reshape(1, 3, 17, 14),)),
    "lstm": (Tagger, (torch.arange(14).reshape(2, 7) % 11,)),
    "transformer": (lambda: Block(8, 2), (torch.linspace(-2, 2, 80).cos().reshape(2, 5, 8),)),
    "masks": (
        Masks,
        (torch.linspace(-2, 2, 12).reshape(3, 4), torch.tensor([[True], [False], [True]])),
    ),
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """The program of one application; all of them have the same sources."""
    folder = tmp_path_factory.mktemp("runtime")
    opsetta.export(nn.ReLU().eval(), (torch.ones(2),)).plan().build(folder)
    sources = [str(folder / name) for name in SOURCES if name.endswith(".c")]
    command = [COMPILER, *FLAGS, "-o", str(folder / "runner"), *sources, "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return folder / "runner"


def run(runner, folder, feed, outputs):
    """The outputs of the program as arrays like the given ones."""
    inputs = [folder / f"input{number}.bin" for number in range(len(feed))]
    for path, array in zip(inputs, feed, strict=True):
        path.write_bytes(array.tobytes())
    paths = [folder / f"output{number}.bin" for number in range(len(outputs))]
    files = [folder / "model.plan", folder / "model.weights", *inputs, *paths]
    subprocess.run([str(runner), *map(str, files)], check=True, timeout=60)
    return [
        np.frombuffer(path.read_bytes(), array.dtype).reshape(array.shape)
        for path, array in zip(paths, outputs, strict=True)
    ]


@needs_compiler
@pytest.mark.parametrize("opset", [13, 17, opsetta.MAXIMUM_OPSET])
@pytest.mark.parametrize("name", MODELS)
def test_the_program_agrees_with_onnxruntime(name, opset, runner, tmp_path):
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    model = build().eval()
    program = opsetta.export(model, inputs, opset=opset)
    feed = [tensor.numpy() for tensor in inputs]
    expected = program(*inputs)
    expected = [
        np.asarray(item) for item in (expected if isinstance(expected, (list, tuple)) else [expected])
    ]
    for in_place in (True, False):
        program.plan(in_place=in_place).build(tmp_path)
        for actual, due in zip(run(runner, tmp_path, feed, expected), expected, strict=True):
            np.testing.assert_allclose(actual, due, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_the_command_and_its_makefile(tmp_path):
    opsetta.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),)).save(tmp_path / "model.onnx")
    with pytest.raises(SystemExit, match="0"):
        main(["build", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "app")])
    subprocess.run(["make", "-C", str(tmp_path / "app"), f"CC={COMPILER}"], check=True, timeout=120)
    done = subprocess.run([str(tmp_path / "app" / "app")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


@needs_compiler
def test_damaged_files_are_refused(runner, tmp_path):
    opsetta.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),)).plan().build(tmp_path)
    plan, weights = (tmp_path / name for name in ("model.plan", "model.weights"))
    intact, contents = plan.read_bytes(), weights.read_bytes()
    (tmp_path / "input0.bin").write_bytes(b"\0" * 12)

    def message() -> str:
        paths = [plan, weights, tmp_path / "input0.bin", tmp_path / "output0.bin"]
        done = subprocess.run([str(runner), *map(str, paths)], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr

    plan.write_bytes(b"OPDX" + intact[4:])
    assert "another format" in message()
    plan.write_bytes(intact[:-1])
    assert "is damaged" in message()
    # An offset beyond the arena.
    plan.write_bytes(intact[:32] + b"\1" + b"\0" * 7 + intact[40:])
    assert "outside of its memory" in message()
    plan.write_bytes(intact)
    weights.write_bytes(contents + b"\0")
    assert "belong to another plan" in message()
    weights.write_bytes(contents)
    (tmp_path / "input0.bin").write_bytes(b"\0" * 8)
    assert "another size than the input" in message()


def test_operators_without_a_kernel_are_all_named(tmp_path):
    program = opsetta.export(lambda x: x.sort()[0].cumsum(0), (torch.ones(3),), opset=17)
    with pytest.raises(PlanError, match=r"no kernels for CumSum \(1\), TopK \(1\)"):
        program.plan().build(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_has_no_form_is_refused(tmp_path):
    relu = nn.ReLU().eval()
    with pytest.raises(PlanError, match="opset 13 or higher, not 9"):
        opsetta.export(relu, (torch.ones(2),), opset=9).plan().build(tmp_path)
    with pytest.raises(PlanError, match="sizes of all dimensions"):
        opsetta.export(relu, (torch.ones(2),), dynamic_shapes={"input": {0: "n"}}).plan().build(tmp_path)


def test_the_runtime_is_small_and_has_no_unknown_operator():
    assert all(onnx.defs.has(name) for name in supported_operators())
    from importlib.resources import files

    folder = files("opsetta.exporter.devices.plan").joinpath("runtime")
    sources = [folder.joinpath(name).read_text() for name in SOURCES]
    assert sum(source.count("\n") for source in sources) <= 1500
    # Only the program around the runtime allocates.
    assert not re.search(r"\b(malloc|calloc|realloc|alloca)\b", sources[SOURCES.index("opsetta_runtime.c")])

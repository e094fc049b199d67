"""Plans of real architectures: checked by an independent reader of their files, and run in one block."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import opsetta
from opsetta.registration import PlanError
from tests.exporter.training.models import CASES as TRAINED
from tests.models import zoo
from tests.onnxruntime_sessions import run_onnxruntime

from .plan_checker import violations

Case = tuple[Callable[[], Any], Mapping[str, np.ndarray]]
QUICK = ("bert", "lstm of a loop", "mobilenetv2")
"""Those that are planned in quick runs."""
OF_DATA = frozenset({"deepseek-v3", "gpt-oss", "jamba", "mixtral", "qwen3-moe"})
"""Models that send each token to experts: the rows of an expert are known when the model runs."""


class Tagger(torch.nn.Module):
    """Names each word of a sentence: two bidirectional LSTM layers."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 24)
        self.recurrent = torch.nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = torch.nn.Linear(64, 7)

    def forward(self, x):
        found, _ = self.recurrent(self.words(x))
        return self.tags(torch.tanh(found)).log_softmax(-1)


class Stepwise(torch.nn.Module):
    """An LSTM whose steps are a loop, with a branch in it."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(12, 16)
        self.gate = torch.nn.Linear(16, 12)

    def forward(self, x):
        h, c = torch.zeros(x.size(1), 16), torch.zeros(x.size(1), 16)
        for step in range(x.size(0)):
            row = x[step]
            if bool(h.sum() > 1.0):
                row = torch.relu(self.gate(h)) + row
            h, c = self.cell(row, (h, c))
        return h, c


class Encoder(torch.nn.Module):
    """Images to text features: convolutions, a GRU over the columns."""

    def __init__(self):
        super().__init__()
        layers: list[torch.nn.Module] = []
        for before, after in ((1, 8), (8, 16), (16, 32)):
            layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after)]
            layers += [torch.nn.ReLU(), torch.nn.MaxPool2d((2, 1))]
        self.layers = torch.nn.Sequential(*layers)
        self.recurrent = torch.nn.GRU(32 * 4, 48, bidirectional=True)

    def forward(self, x):
        found, _ = self.recurrent(self.layers(x).flatten(1, 2).permute(2, 0, 1))
        return found


def _tokens() -> np.ndarray:
    return np.arange(22, dtype=np.int64).reshape(2, 11) % 50


def _tagger() -> Any:
    torch.manual_seed(0)
    return opsetta.export(Tagger().eval(), (torch.from_numpy(_tokens()),), opset=17)


def _stepwise() -> Any:
    torch.manual_seed(0)
    scripted = torch.jit.script(Stepwise().eval())
    x = torch.randn(5, 2, 12)
    return opsetta.export(scripted, (x,), opset=17, dynamic_shapes={"x": {0: "steps"}})


def _encoder() -> Any:
    torch.manual_seed(0)
    return opsetta.export(Encoder().eval(), (torch.randn(1, 1, 32, 20),), opset=17)


OWN: dict[str, Case] = {
    "lstm": (_tagger, {"x": _tokens()}),
    "lstm unrolled": (lambda: opsetta.realize(_tagger(), ["unroll"]), {"x": _tokens()}),
    "lstm of a loop": (_stepwise, {"x": np.sin(np.arange(120, dtype=np.float32)).reshape(5, 2, 12)}),
    "convolutions and gru": (_encoder, {"x": np.cos(np.arange(640, dtype=np.float32)).reshape(1, 1, 32, 20)}),
}
DIMENSIONS = {"lstm of a loop": {"steps": 5}}


def case_of(name: str) -> Case:
    if name in OWN:
        return OWN[name]
    architecture = zoo.BY_NAME[name]
    torch.manual_seed(1)
    inputs = architecture.inputs(2, 6)
    return lambda: opsetta.export(architecture.build(), (), inputs, opset=17), {
        key: value.numpy() for key, value in inputs.items()
    }


def plain(model: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of onnxruntime without optimizations, as each node computes them by itself."""
    return run_onnxruntime(model.model_proto, feed, optimized=False)


NAMES = [*OWN, *sorted(set(zoo.BY_NAME) - OF_DATA)]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.sweep) for name in NAMES]
)
def test_a_plan_of_a_real_model(name, tmp_path):
    build, feed = case_of(name)
    model = build()
    feed = dict(zip(model.input_names, feed.values(), strict=True))
    plan = model.plan(dimensions=DIMENSIONS.get(name))
    assert plan.peak <= 1.03 * plan.lower_bound
    plan.save(tmp_path)
    found = json.loads((tmp_path / "plan.json").read_text())
    assert violations(found, onnx.load(tmp_path / "model.onnx")) == []
    for actual, expected in zip(opsetta.run_in_arena(plan, feed), plain(model, feed), strict=True):
        assert np.array_equal(actual, expected, equal_nan=True)


def training_feed(program: opsetta.TrainingProgram, case: Any) -> dict[str, np.ndarray]:
    """The inputs of a first step."""
    names = [*program.signature.inputs, *program.signature.targets]
    given = dict(zip(names, (case.inputs(4).numpy(), case.targets(4).numpy()), strict=True))
    rates = {name: np.float32(rate) for name, rate in program.signature.learning_rates.items()}
    known = {**program.state, **rates, **given}
    return {name: np.asarray(known[name]) for name in program.input_names}


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        pytest.param(case, kind, id=f"{case.name}-{kind}", marks=[] if quick else [pytest.mark.sweep])
        for case in TRAINED
        for kind in ("sgd", "adam")
        for quick in [(case.name, kind) in (("mlp", "adam"), ("cnn", "sgd"))]
    ],
)
def test_a_plan_of_a_training_step(case, optimizer, tmp_path):
    torch.manual_seed(0)
    program = opsetta.export_training(
        case.model(), (case.inputs(4),), case.targets(4), loss=case.loss, optimizer=optimizer, opset=17
    )
    plan = program.plan(mode="train")
    assert plan.peak <= 1.03 * plan.lower_bound
    plan.save(tmp_path)
    found = json.loads((tmp_path / "plan.json").read_text())
    assert violations(found, onnx.load(tmp_path / "model.onnx")) == []
    phases = {node["phase"] for node in found["nodes"]}
    assert phases == {"forward", "calc_gradient", "calc_derivative", "apply_gradient"}
    feed = training_feed(program, case)
    for actual, expected in zip(opsetta.run_in_arena(plan, feed), plain(program, feed), strict=True):
        assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(OF_DATA))
def test_sizes_that_depend_on_the_routing_are_refused(name):
    build, _ = case_of(name)
    with pytest.raises(PlanError, match="depends on the data"):
        build().plan()


def planted(found: dict[str, Any], change: str) -> None:
    """Damage a plan in one way."""
    buffers = found["buffers"]
    alive = next(b for b in buffers if b["size"] and b["lifetime"][0] < b["lifetime"][1])
    beside = next(
        b
        for b in buffers
        if b is not alive and b["size"] and b["lifetime"][0] <= alive["lifetime"][1] <= b["lifetime"][1]
    )
    if change == "overlap":
        beside["offset"] = alive["offset"]
    elif change == "lifetime":
        alive["lifetime"][1] -= 1
    elif change == "shared":
        alive["values"].append(beside["values"].pop())
    elif change == "size":
        alive["size"] //= 2
    elif change == "peak":
        found["peak"] -= 64
    elif change == "missing":
        buffers.remove(alive)
    elif change == "body overlap":
        body = next(b for b in found["bodies"] if len(b["buffers"]) > 1)
        for buffer in body["buffers"]:
            buffer["offset"] = 0
    elif change == "workspace":
        next(b for b in buffers if b["kind"] == "workspace")["size"] -= 64


@pytest.mark.parametrize(
    "change", ["overlap", "lifetime", "shared", "size", "peak", "missing", "body overlap", "workspace"]
)
def test_planted_faults_are_caught(change, tmp_path):
    build, _ = case_of("lstm of a loop")
    build().plan(dimensions=DIMENSIONS["lstm of a loop"]).save(tmp_path)
    model, text = onnx.load(tmp_path / "model.onnx"), (tmp_path / "plan.json").read_text()
    assert violations(json.loads(text), model) == []
    found = json.loads(text)
    planted(found, change)
    assert violations(found, model)

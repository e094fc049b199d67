"""Plans within a memory limit: nodes run again shortly before late readers of their results."""

import itertools
import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.onnx_model import OnnxModel
from opsetta.registration import PlanError, UsageError
from tests.exporter.training.models import CASES
from tests.onnxruntime_sessions import run_onnxruntime

from .c_programs import needs_compiler, run
from .plan_checker import violations
from .test_plans_of_models import training_feed

# `a` waits for the last node while `b` to `d` need memory.
SKIP = """(float[1000] x) => (float[1000] y) {
    h = Mul(x, x) a = Sigmoid(h) b = Concat<axis = 0>(h, h, h) c = Exp(b) d = ReduceSum<keepdims = 0>(c)
    e = Mul(d, x) y = Add(a, e) }"""
RANDOM = SKIP.replace("Sigmoid(h)", "RandomUniformLike<seed = 1.0>(h)")
CAPTURED = """(float[1000] x, bool q) => (float[1000] y) {
    h = Mul(x, x) a = Sigmoid(h) b = Concat<axis = 0>(h, h, h) c = Exp(b) d = ReduceSum<keepdims = 0>(c)
    y = If (q) <then_branch = first () => (float[1000] v) { v = Mul(a, d) },
                else_branch = second () => (float[1000] w) { w = Neg(a) }> }"""


def parse(text: str, opset: int = 17) -> OnnxModel:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> agraph {text}'
    return OnnxModel(ir.from_proto(onnx.parser.parse_model(text)))


def check(plan, folder, model, feed):
    """The files of a plan are right, and its results are those of the model, bit for bit."""
    plan.save(folder)
    form = json.loads((folder / "plan.json").read_text())
    assert violations(form, onnx.load(folder / "model.onnx")) == []
    assert form["extra_work"] == plan.extra_work
    expected = run_onnxruntime(model.model_proto, feed, optimized=False)
    for actual, due in zip(opsetta.run_in_arena(plan, feed), expected, strict=True):
        assert np.array_equal(actual, due, equal_nan=True)


@pytest.mark.parametrize("opset", [7, 13, opsetta.MAXIMUM_OPSET])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_value_that_waits_is_computed_again(opset, in_place, tmp_path):
    model = parse(SKIP).lower(opset)
    options = {"split": False, "reorder": False, "in_place": in_place}
    plain, plan = model.plan(**options), model.plan(**options, memory_limit="lowest")
    assert plan.peak <= plain.peak - 4000
    assert plain.extra_work == 0.0 < plan.extra_work <= 0.2
    # The node has moved: nothing read its first result before.
    assert [node.op_type for node in plan.nodes].count("Sigmoid") == 1
    check(plan, tmp_path, model, {"x": np.linspace(-1, 1, 1000, dtype=np.float32)})


def test_a_limit_that_is_met_changes_nothing():
    model = parse(SKIP)
    plain = model.plan(split=False)
    plan = model.plan(split=False, memory_limit=plain.peak)
    assert (plan.nodes, plan.extra_work) == (plain.nodes, 0.0)


def test_no_more_operations_than_allowed():
    model = parse(SKIP)
    options = {"split": False, "reorder": False, "memory_limit": "lowest"}
    free = model.plan(**options, extra_work=10)
    bound = model.plan(**options, extra_work=0)
    assert bound.extra_work == 0.0
    assert bound.peak >= free.peak


@pytest.mark.parametrize("text", [RANDOM, CAPTURED])
def test_random_nodes_and_values_of_branches_stay(text, tmp_path):
    plain = parse(text).plan(split=False, reorder=False)
    plan = parse(text).plan(split=False, reorder=False, memory_limit="lowest", extra_work=10)
    order = [node.op_type for node in plan.nodes]
    assert order.count("RandomUniformLike") <= 1
    assert plan.peak <= plain.peak
    plan.save(tmp_path)
    form = json.loads((tmp_path / "plan.json").read_text())
    assert violations(form, onnx.load(tmp_path / "model.onnx")) == []


def test_an_unreachable_limit_names_the_lowest_peak():
    model = parse(SKIP)
    lowest = model.plan(memory_limit="lowest").peak
    assert model.plan(memory_limit=f"{lowest}B").peak <= lowest
    with pytest.raises(PlanError, match=f"need {lowest} bytes, more than memory_limit={lowest - 64}"):
        model.plan(memory_limit=lowest - 64)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"memory_limit": "much"}, UsageError, "is not an amount of memory"),
        ({"memory_limit": 0}, UsageError, "is not an amount of memory"),
        ({"memory_limit": 8000, "extra_work": -1}, UsageError, "must not be negative"),
        ({"memory_limit": 8000, "extra_work": float("nan")}, UsageError, "must not be negative"),
        ({"memory_limit": 8000, "extra_work": "all"}, UsageError, "must be a number"),
    ],
)
def test_wrong_limits_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        parse(SKIP).plan(**options)


def test_a_limit_needs_numbers_for_sizes():
    with pytest.raises(PlanError, match="needs the sizes of all dimensions"):
        parse("(float[n] x) => (float[n] y) { y = Relu(x) }").plan(memory_limit="lowest")


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        pytest.param(case, kind, id=f"{case.name}-{kind}", marks=[] if quick else [pytest.mark.sweep])
        for case, kind in itertools.product(CASES, ("sgd", "adam"))
        for quick in [(case.name, kind) in (("mlp", "adam"), ("cnn", "sgd"))]
    ],
)
def test_a_training_step_within_less_memory(case, optimizer, tmp_path):
    torch.manual_seed(0)
    program = opsetta.export_training(
        case.model(), (case.inputs(4),), case.targets(4), loss=case.loss, optimizer=optimizer, opset=17
    )
    plain = program.plan(mode="train")
    plan = program.plan(mode="train", memory_limit="lowest")
    assert plan.peak < 0.95 * plain.peak
    assert plan.peak <= 1.03 * plan.lower_bound
    assert plan.extra_work <= 0.2
    assert plan.states == plain.states
    assert all(state.in_place for state in plan.states)
    phases = [node.phase for node in plan.nodes]
    assert phases == sorted(phases, key=lambda phase: phase != "forward")
    check(plan, tmp_path, program, training_feed(program, case))


@needs_compiler
@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        pytest.param(case, kind, id=f"{case.name}-{kind}", marks=[] if quick else [pytest.mark.sweep])
        for case, kind in itertools.product(CASES, ("sgd", "adam", "adamw", "lion", "rmsprop"))
        for quick in [(case.name, kind) in (("mlp", "adam"), ("cnn", "sgd"))]
    ],
)
def test_a_training_step_in_c(case, optimizer, runner, tmp_path):
    program = opsetta.export_training(
        case.model(),
        (case.inputs(4),),
        case.targets(4),
        loss=case.loss,
        optimizer=optimizer,
        hyperparameters={"lr": 1e-3},
        opset=17,
    )
    feed = training_feed(program, case)
    expected = run_onnxruntime(program.model_proto, feed, optimized=False)
    results = []
    for limit in (None, "lowest"):
        program.plan(mode="train", memory_limit=limit).build(tmp_path)
        results.append(run(runner, tmp_path, [feed[name] for name in program.input_names], expected))
    for whole, small, due in zip(*results, expected, strict=True):
        np.testing.assert_array_equal(whole, small)
        np.testing.assert_allclose(small, due, rtol=1e-3, atol=1e-5)


def test_the_commands_take_the_options(tmp_path, capsys):
    parse(SKIP).save(tmp_path / "model.onnx")
    limits = ["--memory-limit", "lowest", "--extra-work", "0.2"]
    peaks = []
    for number, options in enumerate(([], limits)):
        folder = tmp_path / str(number)
        with pytest.raises(SystemExit) as caught:
            cli.main(["plan", str(tmp_path / "model.onnx"), "-o", str(folder), "--no-split", *options])
        assert not caught.value.code
        peaks.append(json.loads((folder / "plan.json").read_text())["peak"])
    assert peaks[1] <= peaks[0]
    with pytest.raises(SystemExit) as caught:
        cli.main(["build", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "app"), "--no-split", *limits])
    assert not caught.value.code
    assert f"arena of {peaks[1]} bytes" in " ".join(capsys.readouterr().out.split())

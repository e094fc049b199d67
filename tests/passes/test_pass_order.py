"""The order of the ONNX passes follows from what they say about each other."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from opsetta.passes.onnx_graph import optimize as optimizer
from opsetta.passes.onnx_graph.levels import LEVELS
from opsetta.passes.onnx_graph.node_pass import run_in_order
from opsetta.passes.onnx_graph.pass_order import OnnxPass, Run, order_runs
from opsetta.registration import RegistrationError

from .graph_case import Case, numbers
from .test_written_out_operators import erf_gelu, layer_norm


def make_pass(name: str, *runs: Run) -> type[OnnxPass]:
    return type(name, (OnnxPass,), {"runs": runs})


def names(*pass_types: type[OnnxPass]) -> list[str]:
    return [run.name for run in order_runs(pass_types)]


def test_a_run_follows_those_that_it_names() -> None:
    first = make_pass("First", Run("none"), Run("none", {"Second": "it leaves more to do"}, name="Again"))
    second = make_pass("Second", Run("none", {"Third": "it needs its result"}))
    third = make_pass("Third", Run("none"))
    assert names(first, second, third) == ["First", "Third", "Second", "Again"]
    assert names(third, second, first) == ["Third", "Second", "First", "Again"]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([Run("none", {"Missing": "why"})], "First runs after Missing, but no ONNX pass has such a run"),
        ([Run("none", {"Second": "why"})], "wait for each other: (First after )?Second after First"),
        ([Run("none", {"First": "why"})], "wait for each other: First after First"),
        ([Run("none"), Run("full")], "two runs of ONNX passes have the name First"),
        ([Run("none"), Run("none", name="Second")], "two runs of ONNX passes have the name Second"),
    ],
)
def test_an_order_that_does_not_exist_is_refused(runs: list[Run], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        order_runs([make_pass("First", *runs), make_pass("Second", Run("none", {"First": "why"}))])


def test_every_run_has_a_level_and_reasons() -> None:
    for run in order_runs(optimizer.PASSES):
        assert run.run.level in LEVELS
        assert all(reason.endswith(".") and " " in reason for reason in run.run.after.values())


def test_a_pass_that_runs_again_says_what_its_further_runs_follow() -> None:
    count = Counter(run.pass_type for run in order_runs(optimizer.PASSES))
    for pass_type in (pass_type for pass_type, times in count.items() if times > 1):
        named_runs = [run for run in pass_type.runs if run.name]
        assert len(named_runs) >= count[pass_type] - 1
        assert all(run.after for run in named_runs)


def block(opset: int) -> Case:
    """A linear layer, written-out Gelu and LayerNormalization, and a mask between Transposes."""
    case = Case(["n", 3, 8], opset)
    g = case.g
    gelu = erf_gelu(case)
    product = g.op("MatMul", gelu, g.op("Transpose", case.weight("w", numbers(8, 8)), perm=[1, 0]))
    total = g.op("Mul", g.op("Add", product, case.weight("b", numbers(8))), np.float32(2.0))
    turned = g.op("Transpose", g.op("Relu", g.op("Transpose", total, perm=[0, 2, 1])), perm=[0, 2, 1])
    case.x, source = g.op("Identity", g.op("Add", turned, np.float32(-0.0))), case.x
    normal = layer_norm(case)
    case.x = source
    case.returns(normal, g.op("Pow", turned, np.array(2, dtype=np.int64)))
    return case


@pytest.mark.parametrize("opset", [13, 17, 23])
def test_passes_that_do_not_name_each_other_may_change_places(opset: int) -> None:
    expected = block(opset)
    before = expected.run(numbers(2, 3, 8))
    optimizer.optimize(expected.model, expected.known)
    for seed in range(4):
        shuffled = [*optimizer.PASSES]
        random.Random(seed).shuffle(shuffled)
        case = block(opset)
        initializers = case.known
        run_in_order(case.model, [run.create(initializers) for run in order_runs(shuffled)])
        assert Counter(case.ops()) == Counter(expected.ops())
        for result, reference in zip(case.run(numbers(2, 3, 8)), before, strict=True):
            np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-5)

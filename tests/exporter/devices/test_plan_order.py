"""Plans whose nodes are reordered for less memory, that keep operands, and that update state in place."""

import itertools
import json
import random

import numpy as np
import onnx
import pytest
import torch

import opsetta
from opsetta.exporter.command_line.cli import main
from opsetta.passes.planning.memory_order import Step, find_order
from tests.onnxruntime_sessions import run_onnxruntime

from .plan_checker import violations

TWO_BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
main (float[1,1024] x) => (float[64,16] y)
<int64[2] rows = {64, 1}, int64[2] columns = {1, 16}>
{
  a = Tile(x, rows)
  b = Tile(x, rows)
  mean_a = ReduceMean<axes = [1]>(a)
  mean_b = ReduceMean<axes = [1]>(b)
  sum = Add(mean_a, mean_b)
  y = Tile(sum, columns)
}"""


def loaded(text: str, tmp_path) -> opsetta.OnnxModel:
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return opsetta.load(tmp_path / "model.onnx")


def check(model, plan, feed, tmp_path) -> None:
    plan.save(tmp_path / "plan")
    form = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert violations(form, onnx.load(tmp_path / "plan" / "model.onnx")) == []
    results = run_onnxruntime(model.model_proto, feed, optimized=False)
    for actual, expected in zip(opsetta.run_in_arena(plan, feed), results, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_a_branch_ends_before_the_next_one_begins(tmp_path):
    model = loaded(TWO_BRANCHES, tmp_path)
    large = 64 * 1024 * 4
    assert model.plan(reorder=False).peak > 2 * large
    plan = model.plan()
    assert plan.peak == plan.lower_bound < 1.02 * large
    check(model, plan, {"x": np.arange(1024, dtype=np.float32).reshape(1, 1024)}, tmp_path)


def test_a_training_graph_keeps_its_phases():
    layer = torch.nn.Linear(4, 2).train()
    program = opsetta.export_training(layer, (torch.ones(2, 4),), torch.ones(2, 2), loss=torch.nn.MSELoss())
    orders = [
        [node.name for node in program.plan(mode="train", reorder=flag).nodes] for flag in (True, False)
    ]
    assert orders[0] == orders[1]


def peak_of(order, steps, sizes, initial, kept) -> int:
    """The peak of an order, computed anew."""
    live, peak = set(initial), sum(sizes[value] for value in initial)
    for place, number in enumerate(order):
        step = steps[number]
        later = set().union(*(steps[other].reads for other in order[place + 1 :])) | kept
        shared = next((sizes[value] for value in step.overwrites if value not in later), 0)
        needed = sum(sizes[value] for value in live | set(step.writes))
        peak = max(peak, needed + step.workspace - shared)
        live = (live | set(step.writes)) & later
        live |= {value for value in initial if value in later}
    return peak


def random_problem(seed: int, count: int):
    """A random graph; each node writes the value of its own number, and input values come after those."""
    draw = random.Random(seed)
    steps, sizes = [], [draw.choice((1, 4, 16, 64)) for _ in range(count + 2)]
    for number in range(count):
        reads = {value for value in range(number) if draw.random() < 2.0 / count} | {
            count + draw.randrange(2)
        }
        same = [value for value in sorted(reads) if value < count and sizes[value] == sizes[number]]
        steps.append(
            Step(
                frozenset(value for value in reads if value < count),
                frozenset(reads),
                (number,),
                tuple(same[:1]) if draw.random() < 0.5 else (),
                draw.choice((0, 0, 8)),
            )
        )
    read = set().union(*(step.reads for step in steps))
    initial = frozenset(value for value in (count, count + 1) if value in read)
    kept = frozenset(value for value in range(count) if value not in read)
    return steps, sizes, initial, kept


def orders_of(steps):
    """All topological orders."""
    for order in itertools.permutations(range(len(steps))):
        place = {number: index for index, number in enumerate(order)}
        if all(place[earlier] < place[number] for number in order for earlier in steps[number].after):
            yield order


@pytest.mark.parametrize("seed", range(12))
def test_small_graphs_get_the_best_order(seed):
    problem = random_problem(seed, 6)
    given = tuple(range(6))
    found = find_order(*problem)
    best = min(peak_of(order, *problem) for order in orders_of(problem[0]))
    assert peak_of(given if found is None else found, *problem) == best
    assert (found is None) == (peak_of(given, *problem) == best)


@pytest.mark.parametrize("seed", range(2))
def test_large_graphs_get_a_valid_order_that_is_better(seed):
    problem = random_problem(seed, 300)
    steps = problem[0]
    found = find_order(*problem)
    assert sorted(found) == list(range(len(steps)))
    place = {number: index for index, number in enumerate(found)}
    assert all(place[earlier] < place[number] for number in found for earlier in steps[number].after)
    assert peak_of(found, *problem) < peak_of(range(len(steps)), *problem)


def test_nothing_is_overwritten_on_request(tmp_path):
    model = opsetta.export(lambda x: x + x.relu().tanh(), (torch.ones(2, 64),))
    plan = model.plan(in_place=False)
    assert model.plan().peak < plan.peak
    assert not any(node.in_place for node in plan.nodes)
    check(
        model,
        plan,
        {model.input_names[0]: np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)},
        tmp_path,
    )


def test_the_command_has_the_options(tmp_path):
    loaded(TWO_BRANCHES, tmp_path)
    arguments = ["plan", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "plan")]
    peaks = []
    for options in ([], ["--keep-order"], ["--no-in-place"]):
        with pytest.raises(SystemExit, match="0"):
            main([*arguments, *options])
        peaks.append(json.loads((tmp_path / "plan" / "plan.json").read_text())["peak"])
    assert peaks[0] < peaks[1]
    assert peaks[0] <= peaks[2]


CACHE = """<ir_version: 11, opset_import: ["": 24]>
main (float[1,2,16,4] past, float[1,2,1,4] new, int64[1] position)
  => (float[1,2,16,4] present, float[1,2,16,4] y)
{
  present = TensorScatter(past, new, position)
  y = Neg(present)
}"""


def test_a_cache_is_updated_in_place(tmp_path):
    model = loaded(CACHE, tmp_path)
    plan = model.plan(states={"present": "past"})
    [state] = plan.states
    assert (state.input, state.output, state.in_place) == ("past", "present", True)
    assert plan.buffer_of("past") == plan.buffer_of("present")
    assert plan.peak < model.plan().peak
    assert opsetta.Plan.from_json(plan.to_json()).states == plan.states
    feed = {
        "past": np.zeros((1, 2, 16, 4), np.float32),
        "new": np.ones((1, 2, 1, 4), np.float32),
        "position": np.array([3]),
    }
    check(model, plan, feed, tmp_path)


def test_an_input_does_not_end_with_another_result(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]>
    main (float[64] a, float[64] b) => (float[64] next, float[64] other)
    {
      other = Neg(a)
      next = Add(b, b)
    }"""
    plan = loaded(text, tmp_path).plan(states={"next": "a"})
    assert [state.in_place for state in plan.states] == [False]
    # The caller copies `next` to `a`, which must not destroy `other`.
    assert plan.buffer_of("other") != plan.buffer_of("a")


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "RMSprop"])
def test_a_training_step_updates_all_of_its_state_in_place(name, tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).train()
    program = opsetta.export_training(
        model,
        (torch.randn(4, 6),),
        torch.randn(4, 3),
        loss=torch.nn.MSELoss(),
        optimizer=getattr(torch.optim, name)(model.parameters(), lr=0.125),
        opset=17,
    )
    plan = program.plan(mode="train")
    large = [state for state in plan.states if program.state[state.input].ndim]
    assert {state.input for state in plan.states} == set(program.updates.values())
    assert all(state.in_place for state in large)
    rates = {name: np.asarray(rate, np.float32) for name, rate in program.signature.learning_rates.items()}
    data = {"input": np.ones((4, 6), np.float32), "targets": np.ones((4, 3), np.float32)}
    check(program, plan, {**program.state, **rates, **data}, tmp_path)
    assert not any(state.in_place for state in program.plan(mode="train", in_place=False).states)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ({"present": "passed"}, "no output 'present' with an input 'passed'"),
        ({"absent": "past"}, "no output 'absent'"),
        ({"present": "new"}, "is no next value of input 'new'"),
        ({"present": "past", "y": "past"}, "two outputs"),
    ],
)
def test_states_that_do_not_fit_are_refused(states, reason, tmp_path):
    with pytest.raises(opsetta.UsageError, match=reason):
        loaded(CACHE, tmp_path).plan(states=states)

"""Plans of graphs with If, Loop and Scan: their sub-graphs are planned, and run, in workspaces."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import parser

import opsetta
from opsetta.exporter.devices.plan.forms import json_form
from tests.onnxruntime_sessions import run_onnxruntime

from .plan_checker import violations

BRANCHES = """
g (bool c, float[4, 8] x) => (float[4, 8] y) <float[8, 8] w = {W}> {
  a = Exp(x)
  b = Sin(x)
  s = If (c) <
    then_branch = t () => (float[4, 8] r) { p = MatMul(a, w) q = Relu(p) r = Add(q, b) },
    else_branch = e () => (float[4, 8] u) { m = MatMul(b, w) n = Cos(b) u = Mul(m, n) }>
  y = Neg(s)
}
"""
LOOP = """
g (int64 n, float[4] x) => (float[4] last, float[k, 4] all) {
  t = Constant <value = bool {1}> ()
  last, all = Loop (n, t, x) <body = b (int64 i, bool go, float[4] h)
    => (bool on, float[4] next, float[4] seen) {
    f = Cast <to = 1> (i)
    e = Sin(h)
    d = Add(e, f)
    next = Add(d, x)
    s = ReduceSum <keepdims = 0> (next)
    m = Constant <value = float {30}> ()
    on = Less(s, m)
    seen = Mul(d, d)
  }>
}
"""
SCAN = """
g (float[2] h, float[2, 5] xs, float[5, 2] ys) => (float[2] last, float[5, 2] up, float[2, 5] down) {
  last, up, down = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
    scan_output_axes = [0, 1], scan_output_directions = [1, 0],
    body = b (float[2] s, float[2] x, float[2] y) => (float[2] t, float[2] v, float[2] w) {
      p = Mul(x, y)
      t = Add(s, p)
      v = Sub(t, x)
      w = Exp(y)
    }> (h, xs, ys)
}
"""
NESTED = """
g (int64 n, bool c, float[4] x) => (float[4] last) {
  last = Loop (n, , x) <body = b (int64 i, bool go, float[4] h) => (bool on, float[4] next) {
    on = Identity(go)
    e = Exp(h)
    r = If (c) <
      then_branch = t () => (float[4] p) { j = Sin(e) p = Mul(j, x) },
      else_branch = f () => (float[4] q) { q = Identity(x) }>
    next = Tanh(r)
  }>
}
"""
SWAP = """
g (int64 n, float[3] x, float[3] y) => (float[3] a, float[3] b) {
  a, b = Loop (n, , x, y) <body = l (int64 i, bool go, float[3] p, float[3] q)
    => (bool on, float[3] r, float[3] s) { on = Identity(go) r = Identity(q) o = Relu(p) s = Add(p, o) }>
}
"""


def model_of(body: str, opset: int = 17) -> onnx.ModelProto:
    weights = ", ".join(str(round(0.1 * (k % 7) - 0.3, 1)) for k in range(64))
    text = body.replace("{W}", "{" + weights + "}")
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def planned(model: onnx.ModelProto, tmp_path, **options):
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    plan = opsetta.load(path).plan(**options)
    plan.save(tmp_path / "plan", html=True)
    return plan


def written(tmp_path):
    text = (tmp_path / "plan" / "plan.json").read_text()
    return json.loads(text), onnx.load(tmp_path / "plan" / "model.onnx")


def compare(model: onnx.ModelProto, plan, feed) -> None:
    expected = run_onnxruntime(model, feed, optimized=False)
    for found, wanted in zip(opsetta.run_in_arena(plan, feed), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def numbers(*shape: int) -> np.ndarray:
    return np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


CASES = {
    "branches": (BRANCHES, [{"c": np.array(flag), "x": numbers(4, 8)} for flag in (True, False)]),
    "scan": (SCAN, [{"h": numbers(2), "xs": numbers(2, 5), "ys": numbers(5, 2)}]),
    "nested": (
        NESTED,
        [{"n": np.array(k), "c": np.array(flag), "x": numbers(4)} for k in (0, 3) for flag in (True, False)],
    ),
    "swap": (SWAP, [{"n": np.array(k), "x": numbers(3), "y": numbers(6)[3:]} for k in (0, 1, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_sub_graphs_run_in_their_workspaces(name, tmp_path):
    text, feeds = CASES[name]
    model = model_of(text)
    plan = planned(model, tmp_path)
    assert all(body.peak and body.unplanned is None for body in plan.bodies)
    assert plan.peak == plan.lower_bound
    assert violations(*written(tmp_path)) == []
    for feed in feeds:
        compare(model, plan, feed)


@pytest.mark.parametrize("trips", [0, 1, 5, 50])
def test_a_loop_that_collects_results(trips, tmp_path):
    """The results are as long as there are trips: a loop of known length has a plan."""
    text = LOOP.replace("int64 n, float[4] x", "float[4] x").replace("float[k, 4]", f"float[{trips}, 4]")
    text = text.replace("t = Con", f"n = Constant <value = int64 {{{trips}}}> () t = Con").replace(
        "{30}", "{1e9}"
    )
    model = model_of(text)
    plan = planned(model, tmp_path)
    assert violations(*written(tmp_path)) == []
    compare(model, plan, {"x": numbers(4)})


def test_the_condition_ends_a_loop(tmp_path):
    text = LOOP.replace(", float[k, 4] all", "").replace("last, all = ", "last = ")
    text = text.replace(", float[4] seen)", ")").replace("seen = Mul(d, d)", "")
    model = model_of(text)
    plan = planned(model, tmp_path)
    for trips in (3, 1000):
        compare(model, plan, {"n": np.array(trips), "x": numbers(4)})


def test_a_branch_reads_what_stays_in_memory(tmp_path):
    plan = planned(model_of(BRANCHES), tmp_path)
    [branch] = [node for node in plan.nodes if node.op_type == "If"]
    assert set(branch.captured) == {"a", "w", "b"}
    a, b = plan.buffer_of("a"), plan.buffer_of("b")
    assert a.lifetime[1] == b.lifetime[1] == branch.index
    [workspace] = [buffer for buffer in plan.buffers if buffer.kind == "workspace"]
    assert workspace.lifetime == (branch.index, branch.index)
    # The product takes the sum; cosine and product are there at once.
    assert [(body.attribute, body.peak) for body in plan.bodies] == [
        ("then_branch", 128),
        ("else_branch", 256),
    ]
    assert workspace.size == 256
    assert {body.buffer for body in plan.bodies} == {workspace.name}


def test_the_inputs_of_a_loop_stay(tmp_path):
    """Results become inputs: they never lie over each other."""
    plan = planned(model_of(SWAP), tmp_path)
    [body] = plan.bodies
    inputs = [buffer for buffer in body.buffers if buffer.kind == "input"]
    assert len(inputs) == 4
    assert all(buffer.lifetime == (0, len(body.nodes) - 1) for buffer in inputs)


def test_a_weight_inside_of_a_branch_counts(tmp_path):
    model = model_of(BRANCHES)
    branch = model.graph.node[2].attribute[0].g
    branch.initializer.append(onnx.numpy_helper.from_array(numbers(4, 8), "inside"))
    branch.node[2].input[1] = "inside"
    plan = planned(model, tmp_path)
    assert {weight.name: (weight.size, weight.lifetime) for weight in plan.weights} == {
        "w": (256, (2, 2)),
        "inside": (128, (2, 2)),
    }
    assert violations(*written(tmp_path)) == []
    compare(model, plan, {"c": np.array(True), "x": numbers(4, 8)})


def test_metadata_of_sub_graphs(tmp_path):
    plan = planned(model_of(SWAP), tmp_path)
    _, saved = written(tmp_path)
    onnx.checker.check_model(saved, full_check=True)
    [loop] = saved.graph.node
    facts = {entry.key: entry.value for entry in loop.metadata_props}
    [workspace] = [buffer for buffer in plan.buffers if buffer.kind == "workspace"]
    found = json.loads(facts["opsetta.plan.bodies"])["body"]
    assert (found["buffer"], found["offset"], found["size"]) == (
        workspace.name,
        workspace.offset,
        workspace.size,
    )
    [body] = plan.bodies
    assert [entry["buffer"] for entry in found["inputs"]] == ["i", "go", "p", "q"]
    inner = loop.attribute[0].g.node
    offsets = {
        name: offset
        for node in inner
        for entry in node.metadata_props
        if entry.key == "opsetta.plan.offset"
        for name, offset in zip(node.output, json.loads(entry.value), strict=True)
    }
    of = {value: buffer.offset for buffer in body.buffers for value in buffer.values}
    assert offsets == {name: of[name] for name in ("on", "r", "o", "s")}


def test_a_sub_graph_of_unknown_sizes_says_why(tmp_path):
    text = BRANCHES.replace(
        "p = MatMul(a, w)", "z = NonZero(a) k = Shape(z) l = ReduceMax(k) p = MatMul(a, w)"
    )
    model = model_of(text)
    plan = planned(model, tmp_path)
    then, other = plan.bodies
    assert then.peak is None
    assert "size of 'z' is unknown" in then.unplanned
    assert other.peak == 256
    compare(model, plan, {"c": np.array(True), "x": numbers(4, 8)})
    again = opsetta.Plan.from_json(plan.to_json())
    assert again.bodies == plan.bodies
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert page.count("_branch</td>") == 2
    assert "size of &#x27;z&#x27; is unknown" in page
    jsonschema.validate(json.loads(plan.to_json()), json.loads(json_form.schema()))


def test_sizes_of_sub_graphs_are_formulas(tmp_path):
    model = model_of(BRANCHES.replace("[4, 8]", "[batch, 8]"))
    plan = planned(model, tmp_path)
    assert plan.peak is None
    assert {buffer.size for body in plan.bodies for buffer in body.buffers} == {"32*batch"}
    known = planned(model, tmp_path, dimensions={"batch": 4})
    assert violations(*written(tmp_path)) == []
    assert known.peak == planned(model_of(BRANCHES), tmp_path).peak

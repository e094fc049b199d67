"""Nodes as files of other exporters have them, which a program computes wrongly or refuses."""

import numpy as np
import onnx
import pytest

import opsetta
from opsetta.exporter.devices.targets.load_target import load_target
from opsetta.exporter.devices.targets.target_report import report_on_target

_GELU = """(float[2, 3] x) => (float[2, 3] y)
    <float cubic = {0.0447}, float root = {0.7979}, float one = {1.0}, float half = {0.5}>
    { u = Relu (x) a = Mul (cubic, u) b = Mul (u, a) c = Mul (u, b) d = Add (u, c) e = Mul (root, d)
      t = Tanh (e) s = Add (one, t) h = Mul (half, s) y = Mul (u, h) }"""
_ROW = """(float[1, 2, 3] x) => (float[1, 2, 2] y)
    <float[3, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[1, 1, 2] b = {1.0, 2.0}>
    { p = MatMul (x, w) y = Add (p, b) }"""
_ONE = """(float[1, 2, 3] x) => (float[1, 2, 3] y) <float[1, 1, 1] one = {1.0}>
    { t = Tanh (x) y = Add (one, t) }"""
_TANH = "(float[2, 3] x) => (float[2, 3] y) { y = Tanh (x) }"
_MEAN = "(float[2, 3, 2, 2, 2] x) => (float[1, 3, 1, 1, 1] y) { y = ReduceMean <axes = [0, 2, 3, 4]> (x) }"
_ALL = "(float[1, 2, 2, 3] x) => (float y) { r = Relu (x) y = ReduceMax <keepdims = 0> (r) }"


def _sampled(mode, padding):
    return (
        "(float[1, 2, 4, 5] x, float[1, 3, 3, 2] g) => (float[1, 2, 3, 3] y) "
        f'{{ y = GridSample <mode = "{mode}", padding_mode = "{padding}"> (x, g) }}'
    )


def _clipped(dtype, zero_point, low, high):
    return (
        f"(float[2, 3] x) => (float[2, 3] y) <float s = {{0.05}}, {dtype} z = {{{zero_point}}}, "
        f"{dtype} low = {{{low}}}, {dtype} high = {{{high}}}> "
        "{ q = QuantizeLinear (x, s, z) c = Clip (q, low, high) y = DequantizeLinear (c, s, z) }"
    )


@pytest.mark.parametrize(
    ("target", "operator", "graph"),
    [
        ("opencv", "Mul", _GELU),
        ("opencv5", "Mul", _GELU),
        ("opencv5", "Add", _ROW),
        ("mnn", "Add", _ONE),
        ("opencv5", "Tanh", _TANH),
        ("opencv5", "ReduceMean", _MEAN),
        ("opencv", "ReduceMax", _ALL),
        ("opencv5", "GridSample", _sampled("bicubic", "zeros")),
        ("tract", "GridSample", _sampled("bicubic", "border")),
        ("mnn", "GridSample", _sampled("bilinear", "reflection")),
        ("mnn", "GridSample", _sampled("bicubic", "border")),
        ("opencv", "Clip", _clipped("int8", 0, -127, 127)),
        ("mnn", "Clip", _clipped("uint8", 3, 0, 60)),
    ],
)
def test_nodes_get_a_form_with_the_same_results(target, operator, graph, tmp_path):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {graph}')
    onnx.save(model, tmp_path / "model.onnx")
    plain = opsetta.load(tmp_path / "model.onnx")
    problems = report_on_target(plain.model, load_target(target)).problems
    assert operator in {problem.operator for problem in problems}
    written = plain.lower(target=target)
    assert report_on_target(written.model, load_target(target)).problems == ()
    numbers = np.random.default_rng(0)
    feeds = {
        value.name: (numbers.standard_normal(value.shape.numpy()) * 3).astype(np.float32)
        for value in plain.model.graph.inputs
    }
    [result], [expected] = (program.run(feeds) for program in (written, plain.lower(17)))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "graph"),
    [
        ("opencv5", "(float[2, 3] x) => (float[2, 3] y) { u = Tanh (x) y = Mul (x, u) }"),
        (
            "opencv",
            "(float[2, 3] x, float s) => (uint8[2, 3] y) <uint8 z = {0}, uint8 low = {1}> "
            "{ q = QuantizeLinear (x, s, z) y = Clip (q, low) }",
        ),
        ("mnn", "(float[3] x) => (float[3] y) <float[1] one = {1.0}> { y = Add (one, x) }"),
    ],
)
def test_other_nodes_stay(target, graph, tmp_path):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {graph}')
    onnx.save(model, tmp_path / "model.onnx")
    written = opsetta.load(tmp_path / "model.onnx").lower(target=target)
    nodes = [node.op_type for node in written.model.graph if node.op_type != "Reshape"]
    last = [node.op_type for node in model.graph.node][-1]
    assert nodes[-1] == last
    assert nodes.count(last) == 1

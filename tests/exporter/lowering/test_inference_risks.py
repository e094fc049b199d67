"""Nodes on which onnx's shape inference crashes or loops are told before it runs, and then it runs apart."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from opsetta.exporter.lowering import forks
from opsetta.exporter.lowering.inference import InferenceError, infer_shapes
from opsetta.exporter.lowering.inference_risks import is_equation, is_risky
from opsetta.exporter.lowering.negative_sizes import may_slice_negative_sizes
from opsetta.exporter.lowering.rank_bounds import RankBounds


def model(graph: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "mine": 1]> g {graph}')


RISKY = [
    "(float[4] x) => (y, z) { y, z = Split<num_outputs = 3>(x) }",
    "(float[4] x) => (y) { y = Split<num_outputs = 987654321987>(x) }",
    "(float[2,2] x, float[2] s) => (y) { y = LayerNormalization<axis = 3000000000>(x, s) }",
    "(float[2,2] x, int64[1] i) => (y) { y = GatherND<batch_dims = -9>(x, i) }",
    "(float[2,2] x) => (y) { t = mine.Custom(x) y = EyeLike(t) }",
    "(float[2,2] x) => (y) { y = Softmax(x, x) }",
    "(float[2,2] x) => (y) { y = Concat(x, x) }",
    "(float[2,2] x) => (y) { y = Concat<axis = 0.5>(x, x) }",
    '(float[2,2] x) => (y) { y = Relu("", x) }',
]
PLAIN = [
    '(float[2,2] x) => (y) { y = Einsum<equation = " ...i j , k... -> ...">(x, x) }',
    "(float[4] x) => (y, z) { y, z = Split<num_outputs = 2>(x) }",
    "(float[2,2] x, float[2] s) => (y) { y = LayerNormalization<axis = -1>(x, s) }",
    "(float[2,2] x) => (y) { y = EyeLike(x) }",
    "(float[2,2] x) => (y) { k = Constant<value_int = 9223372036854775807>() y = mine.Custom(x, k) }",
    "(float[2,2] x) => (y) { y = Clip(x, , x) }",
]


@pytest.mark.parametrize("graph", RISKY)
def test_a_node_without_its_operators_form_is_risky(graph):
    assert is_risky(model(graph.replace('""', "")) if '""' not in graph else _with_absent_input())


def _with_absent_input() -> onnx.ModelProto:
    made = model("(float[2,2] x) => (y) { y = Add(x, x) }")
    made.graph.node[0].input[0] = ""
    return made


@pytest.mark.parametrize("graph", PLAIN)
def test_a_well_formed_node_is_not_risky(graph):
    assert not is_risky(model(graph))


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("ij,jk->ik", True),
        ("...ij,...jk", True),
        ("->", True),
        ("i....j", False),
        ("i.j", False),
        ("i->j->k", False),
    ],
)
def test_an_equation_has_one_ellipsis_in_a_term_at_most(text, is_valid):
    assert is_equation(text.encode()) is is_valid


@pytest.mark.parametrize("equation", ["i......j->ij", "ij->...i...", ".....", "i,,......->i"])
def test_inference_that_never_ends_is_not_tried(equation):
    graph = f'(float[2,2] x) => (y) {{ y = Einsum<equation = "{equation}">(x) }}'
    with pytest.raises(ValueError, match="an Einsum has an equation that is not valid"):
        infer_shapes(model(graph))


@pytest.mark.parametrize("graph", [RISKY[1], RISKY[4]])
def test_what_crashes_inference_ends_in_an_error_or_a_result(graph):
    try:
        inferred = infer_shapes(model(graph))
    except (InferenceError, ValueError):
        return
    assert inferred.graph.node[-1].op_type in ("Split", "EyeLike")


def shape_from_numbers(*steps: tuple[str, list[str], str]) -> onnx.ModelProto:
    """A graph in which `steps` end in the shape `s` of an Expand."""
    nodes = [helper.make_node(op_type, inputs, [output]) for op_type, inputs, output in steps]
    nodes.append(helper.make_node("Expand", ["x", "s"], ["y"]))
    constants = {"huge": 2**34, "large": 2**17, "two": 2}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", 1, [1]),
            helper.make_tensor_value_info("wide", 7, [2**17, 2**17]),
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.array([number]), name) for name, number in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    "steps",
    [
        [("ConstantOfShape", ["huge"], "s")],
        [("Mul", ["large", "large"], "n"), ("ConstantOfShape", ["n"], "s")],
        [("Reshape", ["wide", "m"], "s")],
        [("Reshape", ["x", "huge"], "s")],
        [("ConstantOfShape", ["large"], "t"), ("Concat", ["t"] * 8, "s")],
        [("Tile", ["large", "huge"], "s")],
    ],
)
def test_ranks_that_follow_from_numbers_are_bounded(steps):
    assert RankBounds(shape_from_numbers(*steps)).dimensions() > 2**20


def test_shape_arithmetic_of_exporters_has_small_bounds():
    steps = [("Shape", ["x"], "n"), ("ConstantOfShape", ["n"], "ones"), ("Mul", ["ones", "huge"], "m")]
    steps += [("Equal", ["n", "m"], "e"), ("Where", ["e", "ones", "n"], "s")]
    assert RankBounds(shape_from_numbers(*steps)).dimensions() < 2**12


SLICE = "i = Constant<value_ints = [0]>() y = Slice(v, i, i, i)"


@pytest.mark.parametrize(
    ("nodes", "is_found"),
    [
        ("v = Relu(x)", False),
        ("v = Conv(x, x)", True),
        ("n = Constant<value_ints = [3, -4]>() v = Expand(x, n)", True),
        ("n = Constant<value_ints = [3, -4]>() v = Reshape(x, n)", False),
        ("n = Shape(x) m = Sub(n, n) v = ConstantOfShape(m)", True),
        ("n = Shape(x) m = Gather(n, n) v = ConstantOfShape(m)", False),
        ("v = RandomNormal<shape = [2, -3]>()", True),
    ],
)
def test_sizes_that_may_be_negative_are_found(nodes, is_found):
    assert may_slice_negative_sizes(model(f"(float[2,2] x) => (y) {{ {nodes} {SLICE} }}")) is is_found
    assert not may_slice_negative_sizes(model(f"(float[2,2] x) => (v) {{ {nodes} }}"))


def test_a_size_that_ends_the_process_is_an_error():
    graph = "(float[1,1,2,2] x, float[1,1,9,9] w) => (y) { v = Conv(x, w) a = Constant<value_ints = [2]>() "
    graph += "s = Constant<value_ints = [0]>() e = Constant<value_ints = [5]>() y = Slice(v, s, e, a) }"
    with pytest.raises(InferenceError, match="crashes"):
        infer_shapes(model(graph), data_prop=True)


def test_what_is_printed_meanwhile_is_not_taken_for_the_answer(monkeypatch):
    infer = onnx.shape_inference.infer_shapes
    risky = model("(float[2,2] x) => (y) { y = Softmax(x, x) }")
    expected = infer(risky)

    def print_and_infer(*arguments, **options):
        os.write(1, b"hello")
        return infer(*arguments, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", print_and_infer)
    assert infer_shapes(risky) == expected


def test_a_larger_model_has_more_time_by_the_clock(monkeypatch):
    times = []

    def call_in_fork(function, seconds, limits):
        times.append(seconds)
        return function()

    monkeypatch.setattr(forks, "call_in_fork", call_in_fork)
    risky = model("(float[2,2] x) => (y) { y = Softmax(x, x) }")
    small = infer_shapes(risky)
    risky.doc_string = "x" * 1_000_000
    assert infer_shapes(risky).graph == small.graph
    assert times[1] >= times[0] + 9

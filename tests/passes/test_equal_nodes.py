"""Equal nodes: merged as onnx-ir's own pass merges them."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from opsetta.passes.onnx_graph.simplification.equal_nodes import MergeEqualNodes

from .test_unused_nodes import described

CASCADE = "a = Abs(x) b = Abs(x) c = Neg(a) d = Neg(b) y = Add(c, d)"
ATTRIBUTES = """
    a = LeakyRelu <alpha = 0.5> (x) b = LeakyRelu <alpha = 0.25> (x) c = LeakyRelu (x)
    d = LeakyRelu <alpha = 0.5> (x) e = LeakyRelu (x) y = Sum(a, b, c, d, e)
"""
LISTS = """
    a = Transpose <perm = [0, 1]> (m) b = Transpose <perm = [1, 0]> (m) c = Transpose <perm = [1, 0]> (m)
    y = Concat <axis = 0> (b, c) z = Neg(a)
"""
TENSORS = """
    s = Shape(m) t = Shape(m)
    a = ConstantOfShape <value = float[1] {1}> (s) b = ConstantOfShape <value = float[1] {2}> (s)
    c = ConstantOfShape <value = float[1] {1}> (t) d = ConstantOfShape <value = int32[1] {1}> (t)
    e = Cast <to = 1> (d) y = Sum(a, b, c, e)
"""
LARGE = """
    a = Constant <value = int64[12] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
    b = Constant <value = int64[12] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
    c = Constant <value = int64[2] {1, 2}> () d = Constant <value = int64[2] {1, 2}> ()
    y = Concat <axis = 0> (a, b, c, d)
"""
OPERATORS = "a = Sin(x) b = Cos(x) c = Add(a, b) d = Add(b, a) e = Mul(a, b) y = Sum(c, d, e)"
OUTPUTS = "a, k = TopK(x, one) b, l = TopK(x, one) y = Add(a, b) z = Add(k, l)"
RETURNED = "y = Abs(x) z = Abs(x) u = Neg(y) v = Neg(z)"
BRANCHES = """
    a = Abs(x)
    y = If (yes) <then_branch = one () => (float[2] p) { p = Neg(a) },
                else_branch = two () => (float[2] q) { q = Exp(a) }>
    b = Abs(x)
    z = If (yes) <then_branch = three () => (float[2] r) { r = Neg(b) },
                else_branch = four () => (float[2] s) { s = Exp(b) }>
"""


@pytest.mark.parametrize(
    "nodes", [CASCADE, ATTRIBUTES, LISTS, TENSORS, LARGE, OPERATORS, OUTPUTS, RETURNED, BRANCHES]
)
def test_the_graph_is_that_of_the_pass_of_onnx_ir(nodes):
    outputs = [name for name in "yzuv" if f"{name} = " in nodes]
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x, float[2,3] m, bool yes) => '
        f"({', '.join(outputs)}) <int64[1] one = {{1}}> {{ {nodes} }}"
    )
    model, expected = ir.from_onnx_text(text), ir.from_onnx_text(text)
    found, wanted = MergeEqualNodes()(model), common.CommonSubexpressionEliminationPass()(expected)
    assert described(model) == described(expected)
    assert [value.name for value in model.graph.outputs] == outputs
    assert found.modified == wanted.modified
    assert not MergeEqualNodes()(model).modified


def test_many_nodes_that_read_nothing_take_time_in_proportion():
    nodes = "".join(f"a{number} = Constant <value_int = {number // 2}> ()" for number in range(4000))
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 18]> g () => (a0) {{ {nodes} }}')
    assert MergeEqualNodes()(model).modified
    assert len(model.graph) == 2000


def test_nodes_of_a_body_are_merged() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x, int64 n) => (y, rows) {
        y, rows = Loop (n, , x) <body =
            b (int64 i, bool go, float[2] c) => (bool on, float[2] d, float[2] e) {
            on = Identity(go) p = Abs(c) q = Abs(c) d = Add(p, q) e = Add(p, q) }>
    }"""
    model = ir.from_onnx_text(text)
    assert MergeEqualNodes()(model).modified
    [body] = [attribute.as_graph() for node in model.graph for attribute in node.attributes.values()]
    assert [node.op_type for node in body] == ["Identity", "Abs", "Add", "Identity"]
    assert [value.name for value in body.outputs] == ["on", "d", "e"]
    assert not MergeEqualNodes()(model).modified

"""Unused nodes, outputs and inputs: removed as onnx-ir's own pass removes them."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from opsetta.passes.onnx_graph.simplification.unused_nodes import RemoveUnused

DEAD = """
   a = Abs(x)
   b = Neg(a)
   d = Exp(b)
   y = Cos(a)
"""
OPTIONAL_OUTPUTS = """
   values, h, cell = LSTM <hidden_size = 2> (s, w, r)
   y = Shape(h)
"""
OPTIONAL_INPUTS = """
   y = Clip(x, , )
"""
INFERENCE = """
   y, m, v = BatchNormalization <training_mode = 0> (s, one, one, one, one)
"""
TRAINING = """
   y, m, v = BatchNormalization <training_mode = 1> (s, one, one, one, one)
"""
IN_A_BRANCH = """
   a = Abs(x)
   d = Neg(x)
   y = If (c) <
      then_branch = one () => (float[2] p) { q = Sin(a) p = Relu(a) },
      else_branch = two () => (float[2] t) { u, k = TopK(a, one) t = Identity(u) }
   >
"""


def described(model: ir.Model) -> list[tuple[object, ...]]:
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    found: list[tuple[object, ...]] = [
        (
            node.op_type,
            [value.name if value is not None else None for value in node.inputs],
            [value.name for value in node.outputs],
            sorted(node.attributes),
        )
        for node in nodes
    ]
    return [*found, tuple(model.graph.initializers)]


@pytest.mark.parametrize("opset", [7, 13, 18])
@pytest.mark.parametrize("nodes", [DEAD, OPTIONAL_OUTPUTS, OPTIONAL_INPUTS, INFERENCE, TRAINING, IN_A_BRANCH])
def test_the_graph_is_that_of_the_pass_of_onnx_ir(nodes, opset):
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2] x, float[1,2,2] s, float[1,8,2] w, '
        "float[1,8,2] r, bool c) => (y) <float[1] one = {1.0}, float[1] unread = {1.0}> {" + nodes + "}"
    )
    model, expected = ir.from_onnx_text(text), ir.from_onnx_text(text)
    found, wanted = RemoveUnused()(model), common.RemoveUnusedNodesPass()(expected)
    assert described(model) == described(expected)
    assert found.modified == wanted.modified
    assert "unread" not in model.graph.initializers
    assert not RemoveUnused()(model).modified


@pytest.mark.parametrize(("nodes", "read"), [("y = Abs(x)", "x"), ("y = Abs(x) a = Neg(x)", "a")])
def test_nodes_without_outputs_stay_unless_they_may_go(nodes, read):
    models = []
    for _ in range(2):
        text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) {{ {nodes} }}'
        model = ir.from_onnx_text(text)
        values = {value.name: value for node in model.graph for value in (*node.inputs, *node.outputs)}
        model.graph.append(ir.Node("custom", "Watch", [values[read]], num_outputs=0))
        models.append(model)
    assert not RemoveUnused()(models[0]).modified
    assert RemoveUnused(keeps_effects=False)(models[1]).modified
    assert [node.op_type for node in models[1].graph] == ["Abs"]

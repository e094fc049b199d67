"""The clean-up of finished graphs, on graphs of a few nodes."""

import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

from opsetta.passes.onnx_graph.optimize import optimize


def tensor(name, *shape):
    return Value(name=name, type=ir.TensorType(DataType.FLOAT), shape=ir.Shape(shape))


def model(x, nodes):
    graph = ir.Graph([x], [nodes[-1].outputs[0]], nodes=nodes, opset_imports={"": 18, "custom": 1}, name="g")
    return ir.Model(graph, ir_version=8)


@pytest.mark.parametrize(
    ("domain", "op_type", "count"),
    [("", "Exp", 1), ("", "Bernoulli", 2), ("", "RandomUniformLike", 2), ("custom", "Exp", 2)],
)
def test_equal_nodes_are_merged_where_they_give_the_same(domain, op_type, count):
    x = tensor("x", 2)
    twice = [ir.Node(domain, op_type, [x], num_outputs=1, name=name) for name in "ab"]
    total = ir.Node("", "Add", [each.outputs[0] for each in twice], num_outputs=1)
    made = model(x, [*twice, total])
    assert optimize(made) is (count == 1)
    assert [node.op_type for node in made.graph] == [op_type] * count + ["Add"]
    assert not any(node.attributes for node in made.graph)
    assert not optimize(made)


def test_an_identity_of_another_stated_rank_stays():
    x = tensor("x", 2, 3)
    copy = ir.Node("", "Identity", [x], outputs=[tensor("h", 2)])
    made = model(x, [copy, ir.Node("", "Neg", copy.outputs, num_outputs=1)])
    assert not optimize(made)


def test_a_graph_of_many_outputs_keeps_its_repeats():
    x = tensor("x", 2)
    made = model(x, [ir.Node("", "Exp", [x], num_outputs=1) for _ in range(600)])
    made.graph.outputs[:] = [node.outputs[0] for node in made.graph]
    assert not optimize(made)
    assert len(made.graph) == 600

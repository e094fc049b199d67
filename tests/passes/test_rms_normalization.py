"""RMSNormalization in the place of its composition: where it fits, and where it must not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.target.fusions.rms_normalization import FuseRMSNormalization
from opsetta.registration import GraphContext, Registry


def build(
    opset: int = 23, scale_shape: tuple = (4,), axis: int = -1, second_reader: bool = False
) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape(["b", 3, 4]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": opset})
    g = GraphContext(graph, opset, Registry())
    scale = g.constant(np.ones(scale_shape, dtype=np.float32))
    mean = g.op("ReduceMean", g.op("Pow", x, 2.0), axes=[axis], keepdims=1)
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, 1e-6)))
    graph.outputs.append(g.op("Mul", scale, g.op("Mul", x, inverse)))
    if second_reader:
        graph.outputs.append(g.op("Neg", inverse))
    return ir.Model(graph, ir_version=11)


def test_composition_becomes_one_node() -> None:
    model = build()
    assert FuseRMSNormalization()(model).modified
    assert [node.op_type for node in model.graph] == ["RMSNormalization"]
    node = model.graph[0]
    assert node.attributes["epsilon"].as_float() == pytest.approx(1e-6)
    assert model.graph.outputs[0] is node.outputs[0]
    assert not FuseRMSNormalization()(model).modified


@pytest.mark.parametrize(
    "changes",
    [{"opset": 22}, {"scale_shape": ()}, {"scale_shape": (1, 4)}, {"axis": 1}, {"second_reader": True}],
    ids=lambda changes: next(iter(changes)),
)
def test_other_graphs_stay(changes: dict) -> None:
    model = build(**changes)
    before = [node.op_type for node in model.graph]
    assert not FuseRMSNormalization()(model).modified
    assert [node.op_type for node in model.graph] == before

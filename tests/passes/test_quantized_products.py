"""Biases of dequantized products are separated where onnxruntime needs it for its integer kernels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.products.quantized_products import SplitQuantizedProducts
from opsetta.registration import GraphContext, Registry


def build(
    rank: int = 3, gemm: bool = False, then: tuple[str, ...] = (), quantized: bool = True, opset: int = 13
) -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape([2, 3, 4][-rank:]), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": opset})
    g = GraphContext(graph, opset, Registry())
    scale, zero_point = g.constant(0.5), g.constant(np.array(3, dtype=np.uint8))
    read = g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero_point), scale, zero_point)
    weight = g.constant(np.ones((5, 4), dtype=np.int8))
    weight = g.op("DequantizeLinear", weight, scale, g.constant(np.zeros((), dtype=np.int8)))
    bias = g.constant(np.ones(5, dtype=np.float32))
    left = read if quantized else x
    if gemm:
        result = g.op("Gemm", left, weight, bias, transB=1)
    else:
        result = g.op("Add", g.op("MatMul", left, g.op("Transpose", weight, perm=[1, 0])), bias)
    result.shape = ir.Shape([2, 3, 5][-rank:])
    for op_type in then:
        rest = (scale, zero_point) if op_type == "QuantizeLinear" else ()
        result = g.op(op_type, result, *rest)
    graph.outputs.append(result)
    return ir.Model(graph, ir_version=9)


def names(model: ir.Model) -> list[str]:
    found = [node.op_type for node in model.graph]
    return [name for name in found if name not in ("QuantizeLinear", "DequantizeLinear", "Transpose")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["MatMul", "Reshape", "Add"]),
        ({"then": ("Relu", "QuantizeLinear")}, ["MatMul", "Reshape", "Add", "Relu"]),
        ({"rank": 2}, ["Gemm", "Add"]),
        ({"rank": 2, "gemm": True}, ["Gemm", "Add"]),
        ({"rank": 2, "gemm": True, "then": ("Relu",)}, ["Gemm", "Add", "Relu"]),
    ],
    ids=str,
)
def test_bias_is_kept_apart(changes: dict, expected: list[str]) -> None:
    model = build(**changes)
    assert SplitQuantizedProducts()(model).modified
    assert names(model) == expected
    assert all(len(node.inputs) == 2 for node in model.graph if node.op_type == "Gemm")
    assert not SplitQuantizedProducts()(model).modified


@pytest.mark.parametrize(
    "changes",
    [
        {"quantized": False},
        {"then": ("QuantizeLinear",)},
        {"rank": 2, "gemm": True, "then": ("QuantizeLinear",)},
        {"rank": 2, "gemm": True, "then": ("Relu", "QuantizeLinear")},
        {"rank": 2, "gemm": True, "opset": 10},
    ],
    ids=str,
)
def test_other_graphs_stay(changes: dict) -> None:
    model = build(**changes)
    before = names(model)
    assert not SplitQuantizedProducts()(model).modified
    assert names(model) == before

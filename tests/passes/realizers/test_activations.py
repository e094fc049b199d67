"""Fused operators are split into an operator and its activation, and fused again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import FuseActivations, SplitActivations
from opsetta.registration import GraphError

from .checks import OPSETS, model_of, numbers, realized, unchanged

ACTIVATIONS = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "LeakyRelu": {"alpha": 0.3},
    "HardSigmoid": {"alpha": 0.1},
}
LAYERS = {"Conv": (2, 3, 3, 3), "Gemm": (4, 5)}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_there_and_back(layer, name, opset):
    shape = (1, 3, 6, 6) if layer == "Conv" else (3, 4)
    attributes = {"strides": [2, 2]} if layer == "Conv" else {"alpha": 0.5}
    nodes = [
        helper.make_node(layer, ["x", "w", "b"], ["h"], "layer", **attributes),
        helper.make_node(name, ["h"], ["y"], **ACTIVATIONS[name]),
    ]
    weights = {"w": numbers(*LAYERS[layer]), "b": numbers(LAYERS[layer][0 if layer == "Conv" else 1])}
    model = model_of(opset, nodes, {"x": shape}, ["y"], weights)
    feed = {"x": numbers(*shape)}
    assert realized(model, FuseActivations(), feed, 1e-6) == [f"Fused{layer}"]
    assert realized(model, SplitActivations(), feed, 1e-6) == [layer, name]
    assert "com.microsoft" not in model.graph.opset_imports


@pytest.mark.parametrize("opset", OPSETS)
def test_clip(opset):
    clip = helper.make_node("Clip", ["h"], ["y"], min=0.0, max=6.0)
    weights = {"w": numbers(2, 3, 3, 3)}
    if opset > 9:
        clip = helper.make_node("Clip", ["h", "low", "high"], ["y"])
        weights |= {"low": np.float32(0), "high": np.float32(6)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), clip]
    model = model_of(opset, nodes, {"x": (1, 3, 6, 6)}, ["y"], weights)
    feed = {"x": numbers(1, 3, 6, 6)}
    assert realized(model, FuseActivations(), feed, 1e-6) == ["FusedConv"]
    assert realized(model, SplitActivations(), feed, 1e-6) == ["Conv", "Clip"]


def fused(op_type, inputs, **attributes):
    return helper.make_node(op_type, inputs, ["y"], "f", "", "com.microsoft", **attributes)


def typed(model, *shape):
    """State the type of the output, which onnx does not infer of other domains."""
    model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.outputs[0].shape = ir.Shape(shape)


def test_the_sum_of_a_fused_convolution():
    node = fused("FusedConv", ["x", "w", "b", "z"], activation="Relu")
    weights = {"w": numbers(2, 3, 3, 3), "b": numbers(2)}
    shapes = {"x": (1, 3, 6, 6), "z": (1, 2, 4, 4)}
    model = model_of(17, [node], shapes, ["y"], weights, {"com.microsoft": 1})
    typed(model, 1, 2, 4, 4)
    feed = {name: numbers(*shape) for name, shape in shapes.items()}
    assert realized(model, SplitActivations(), feed, 1e-6) == ["Conv", "Add", "Relu"]


def test_matrix_products_of_onnxruntime():
    node = fused("FusedMatMul", ["x", "w"], alpha=0.5, transA=1, transB=1)
    shapes = {"x": (2, 4, 3), "w": (2, 5, 4)}
    model = model_of(17, [node], shapes, ["y"], domains={"com.microsoft": 1})
    typed(model, 2, 3, 5)
    feed = {name: numbers(*shape) for name, shape in shapes.items()}
    assert realized(model, SplitActivations(), feed, 1e-6) == ["Transpose", "Transpose", "MatMul", "Mul"]


def test_an_unknown_activation_is_refused():
    node = fused("FusedGemm", ["x", "x"], activation="Secret")
    model = model_of(17, [node], {"x": (3, 3)}, ["y"], domains={"com.microsoft": 1})
    with pytest.raises(GraphError, match="'Secret'"):
        SplitActivations()(model)


@pytest.mark.parametrize(("outputs", "dtype"), [(["y", "h"], "FLOAT"), (["y"], "FLOAT16")])
def test_what_is_not_fused(outputs, dtype):
    nodes = [helper.make_node("Gemm", ["x", "x", "x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    unchanged(model_of(17, nodes, {"x": (dtype, 3, 3)}, outputs), FuseActivations())

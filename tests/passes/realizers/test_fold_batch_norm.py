"""Batch normalization inside of the weights before it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import FoldBatchNorm

from .checks import OPSETS, model_of, numbers, realized, unchanged


def normalized(layer, x, weights, channels, opset=17, extra=(), outputs=("y",), **attributes):
    statistics = {
        "scale": numbers(channels, seed=5),
        "shift": numbers(channels, seed=6),
        "mean": numbers(channels, seed=7),
        "variance": np.abs(numbers(channels, seed=8)) + 0.5,
    }
    nodes = [
        layer,
        helper.make_node("BatchNormalization", ["h", *statistics], ["y"], "norm", epsilon=1e-3, **attributes),
        *extra,
    ]
    return model_of(opset, nodes, {"x": x}, outputs, {**weights, **statistics}), {"x": numbers(*x)}


LAYERS = {
    "Conv": (("Conv", {}), (6, 4, 3, 3), 6, (2, 4, 8, 8)),
    "Conv of groups": (("Conv", {"group": 2}), (6, 2, 3, 3), 6, (2, 4, 8, 8)),
    "Conv of one dimension": (("Conv", {}), (6, 4, 3), 6, (2, 4, 8)),
    "ConvTranspose": (("ConvTranspose", {}), (4, 6, 3, 3), 6, (2, 4, 8, 8)),
    "ConvTranspose of groups": (("ConvTranspose", {"group": 2}), (4, 3, 3, 3), 6, (2, 4, 8, 8)),
    "Gemm": (("Gemm", {"alpha": 0.5, "beta": 2.0}), (4, 6), 6, (3, 4)),
    "Gemm transposed": (("Gemm", {"transB": 1}), (6, 4), 6, (3, 4)),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_folded(name, bias):
    (op_type, attributes), weight, channels, x = LAYERS[name]
    names = ["x", "w", "b"] if bias else ["x", "w"]
    weights = {"w": numbers(*weight, seed=1), **({"b": numbers(channels, seed=2)} if bias else {})}
    layer = helper.make_node(op_type, names, ["h"], **attributes)
    model, feed = normalized(layer, x, weights, channels)
    assert realized(model, FoldBatchNorm(), feed, 1e-4) == [op_type]
    assert len(model.graph.initializers) == 2


@pytest.mark.parametrize("opset", OPSETS)
def test_at_each_opset(opset):
    layer = helper.make_node("Conv", ["x", "w"], ["h"])
    model, feed = normalized(layer, (1, 2, 5, 5), {"w": numbers(3, 2, 3, 3)}, 3, opset)
    assert realized(model, FoldBatchNorm(), feed, 1e-4) == ["Conv"]


def test_a_matrix_as_bias():
    layer = helper.make_node("Gemm", ["x", "w", "b"], ["h"], beta=0.5)
    model, feed = normalized(layer, (3, 4), {"w": numbers(4, 6), "b": numbers(3, 1)}, 6)
    assert realized(model, FoldBatchNorm(), feed, 1e-4) == ["Gemm"]


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": ("y", "h")},
        {"extra": [helper.make_node("Relu", ["h"], ["z"])], "outputs": ("y", "z")},
        {"extra": [helper.make_node("ReduceMax", ["w"], ["z"])], "outputs": ("y", "z")},
    ],
    ids=["output", "second reader", "shared weight"],
)
def test_what_else_is_read_stays(changes):
    layer = helper.make_node("Conv", ["x", "w"], ["h"])
    model, _ = normalized(layer, (1, 2, 5, 5), {"w": numbers(3, 2, 3, 3)}, 3, **changes)
    unchanged(model, FoldBatchNorm())


def test_a_computed_weight_stays():
    layer = helper.make_node("Gemm", ["x", "x"], ["h"])
    unchanged(normalized(layer, (3, 3), {}, 3)[0], FoldBatchNorm())


def test_a_weight_that_callers_may_replace_stays():
    layer = helper.make_node("Conv", ["x", "w"], ["h"])
    model, _ = normalized(layer, (1, 2, 5, 5), {"w": numbers(3, 2, 3, 3)}, 3)
    model.graph.inputs.append(model.graph.initializers["w"])
    unchanged(model, FoldBatchNorm())

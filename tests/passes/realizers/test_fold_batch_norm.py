"""Batch normalization is folded into the weights before it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from opsetta.passes.realizers import FoldBatchNorm

from .checks import OPSETS, F, model_of, numbers, realized, unchanged


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


def test_numbers_are_rounded_once():
    """The new weights are those of a computation in double precision, rounded to their own type."""
    layer = helper.make_node("Gemm", ["x", "w", "b"], ["h"], beta=3.0)
    weights = {"w": numbers(4, 6, seed=1), "b": numbers(6, seed=2)}
    model, _ = normalized(layer, (3, 4), weights, 6)
    scale, shift, mean, variance = (
        model.graph.initializers[name].const_value.numpy().astype(np.float64)
        for name in ("scale", "shift", "mean", "variance")
    )
    factor = scale / np.sqrt(variance + np.float64(np.float32(1e-3)))
    assert FoldBatchNorm()(model).modified
    [gemm] = model.graph
    weight, bias = (value.const_value.numpy() for value in gemm.inputs[1:])
    np.testing.assert_array_equal(weight, (weights["w"].astype(np.float64) * factor).astype(np.float32))
    np.testing.assert_array_equal(
        bias, (3.0 * weights["b"].astype(np.float64) * factor + (shift - mean * factor)).astype(np.float32)
    )
    assert "beta" not in gemm.attributes


def test_weights_of_double_precision():
    layer = helper.make_node("Gemm", ["x", "w"], ["h"])
    model, _ = normalized(layer, (3, 4), {"w": numbers(4, 6)}, 6)
    for name, value in model.graph.initializers.items():
        array = np.asarray(value.const_value.numpy(), np.float64) * (1 + 1e-12)
        value.const_value, value.dtype = ir.tensor(array, name=name), ir.DataType.DOUBLE
    for value in (model.graph.inputs[0], *(value for node in model.graph for value in node.outputs)):
        value.dtype = ir.DataType.DOUBLE
    assert realized(model, FoldBatchNorm(), {"x": numbers(3, 4, dtype=np.float64)}, 1e-13) == ["Gemm"]


def test_parameters_that_are_constant_nodes():
    """The weight is a Constant with another reader, which keeps it."""
    weight = numpy_helper.from_array(numbers(3, 2, 3, 3), "value")
    scale = numpy_helper.from_array(numbers(3, seed=5), "value")
    rest = {"shift": numbers(3), "mean": numbers(3), "variance": np.abs(numbers(3)) + 0.5}
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("Constant", [], ["scale"], value=scale),
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "scale", *rest], ["y"]),
        helper.make_node("ReduceMax", ["w"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (1, 2, 5, 5)}, ["y", "z"], rest)
    found = realized(model, FoldBatchNorm(), {"x": numbers(1, 2, 5, 5)}, 1e-4)
    assert found == ["Constant", "Conv", "ReduceMax"]


def test_inside_of_branches():
    weights = {name: np.abs(numbers(3)) + 0.5 for name in "klmn"}
    weights |= {"wt": numbers(3, 2, 3, 3), "we": numbers(3, 2, 3, 3)}

    def branch(name):
        nodes = [
            helper.make_node("Conv", ["x", f"w{name}"], [f"h{name}"]),
            helper.make_node("BatchNormalization", [f"h{name}", *"klmn"], [name]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, F, (1, 3, 3, 3))])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    model = model_of(17, [node], {"x": (1, 2, 5, 5), "c": ("BOOL",)}, ["y"], weights)
    assert realized(model, FoldBatchNorm(), {"x": numbers(1, 2, 5, 5), "c": np.array(True)}, 1e-4) == ["If"]
    inner = [[one.op_type for one in graph] for graph in model.graph.subgraphs()]
    assert inner == [["Conv"], ["Conv"]]

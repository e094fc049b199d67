"""Interfaces are changed to NHWC, and back to NCHW."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import ChannelsFirst, ChannelsLast

from .checks import OPSETS, check, model_of, numbers, operators, run, unchanged

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def change(model, realizer, feed, order, tolerance=None):
    """Run a pass; inputs and outputs of four dimensions are transposed, and nothing else changes."""
    expected = run(model, feed)
    names = [[v.name for v in values] for values in (model.graph.inputs, model.graph.outputs)]
    assert realizer(model).modified
    check(model)
    assert [[v.name for v in values] for values in (model.graph.inputs, model.graph.outputs)] == names
    given = {k: a.transpose(order) if a.ndim == 4 else a for k, a in feed.items()}
    for wanted, found in zip(expected, run(model, given), strict=True):
        wanted = wanted.transpose(order) if wanted.ndim == 4 else wanted
        if tolerance is None:
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    unchanged(model, realizer)
    return operators(model), given


def both_ways(model, feed, tolerance=None):
    """To NHWC and back; the operators in between."""
    before = Counter(operators(model))
    found, given = change(model, ChannelsLast(), feed, TO_LAST, tolerance)
    after, back = change(model, ChannelsFirst(), given, TO_FIRST, tolerance)
    assert {name: array.shape for name, array in back.items()} == {n: a.shape for n, a in feed.items()}
    assert Counter(after)["Transpose"] <= before["Transpose"]
    return found


@pytest.mark.parametrize("opset", OPSETS)
def test_transposes_move_to_the_operators_that_need_them(opset):
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(opset, nodes, {"x": ("n", 3, 6, 5)}, ["y"], {"w": numbers(4, 3, 3, 3)})
    found, _ = change(model, ChannelsLast(), {"x": numbers(2, 3, 6, 5)}, TO_LAST)
    assert found == ["Sigmoid", "Tanh", "Transpose", "Conv", "Transpose", "Relu"]
    assert [str(dim) for dim in model.graph.inputs[0].shape] == ["n", "6", "5", "3"]


def test_element_wise_models_need_no_transposes():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    model = model_of(17, nodes, {"x": (1, 3, 2, 4)}, ["y"])
    assert both_ways(model, {"x": numbers(1, 3, 2, 4)}) == ["Relu", "Tanh"]


def test_operands_concatenation_and_padding_in_either_layout():
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"]),
        helper.make_node("Add", ["a", "z"], ["b"]),
        helper.make_node("Concat", ["b", "x"], ["c"], axis=1),
        helper.make_node("Pad", ["c", "pads"], ["d"]),
        helper.make_node("Slice", ["d", "start", "end", "axes"], ["e"]),
        helper.make_node("Where", ["flags", "e", "zero"], ["y"]),
    ]
    weights = {
        "scale": numbers(3, 1, 1),
        "pads": np.array([0, 1, 0, 2, 0, 0, 1, 0]),
        "start": np.array([1]),
        "end": np.array([6]),
        "axes": np.array([1]),
        "flags": np.arange(7).reshape(7, 1) % 2 == 0,
        "zero": np.float32(0),
    }
    model = model_of(17, nodes, {"x": (2, 3, 6, 5), "z": (2, 3, 6, 5)}, ["y"], weights)
    found = both_ways(model, {"x": numbers(2, 3, 6, 5), "z": numbers(2, 3, 6, 5, seed=1)})
    assert found == ["Mul", "Add", "Concat", "Pad", "Slice", "Where"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(opset, keepdims):
    axes = {"axes": [2, 3]} if opset < 18 else {}
    inputs = ["a"] if opset < 18 else ["a", "axes"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("ReduceMean", inputs, ["y"], keepdims=keepdims, **axes),
    ]
    weights = {} if opset < 18 else {"axes": np.array([2, 3])}
    model = model_of(opset, nodes, {"x": (2, 3, 6, 5)}, ["y"], weights)
    assert both_ways(model, {"x": numbers(2, 3, 6, 5)}, 1e-6) == ["Relu", "ReduceMean"]


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes"),
    [
        (9, ["scales"], {}),
        (10, ["scales"], {}),
        (13, ["", "scales"], {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
        (13, ["", "", "sizes"], {}),
        (19, ["", "", "some"], {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
    ],
)
def test_resizing_to_the_nearest_pixel(opset, inputs, attributes):
    kind = "Upsample" if opset == 9 else "Resize"
    nodes = [
        helper.make_node(kind, ["x", *inputs], ["a"], mode="nearest", **attributes),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    weights = {
        "scales": np.array([1, 1, 2, 3], np.float32),
        "sizes": np.array([1, 3, 7, 5]),
        "some": np.array([12, 12]),
    }
    weights = {name: array for name, array in weights.items() if name in inputs}
    model = model_of(opset, nodes, {"x": (1, 3, 6, 5)}, ["y"], weights)
    assert both_ways(model, {"x": numbers(1, 3, 6, 5)}) == [kind, "Neg"]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_stays_along_the_last_dimensions(mode):
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["a"], mode=mode),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    weights = {"scales": np.array([1, 1, 2, 3], np.float32)}
    model = model_of(17, nodes, {"x": (1, 3, 6, 5)}, ["y"], weights)
    found = both_ways(model, {"x": numbers(1, 3, 6, 5)})
    assert Counter(found) == Counter(["Transpose", "Resize", "Neg", "Transpose"])


def test_two_results_share_a_transpose():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Sigmoid", ["c"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (1, 3, 6, 5)}, ["y", "z"], {"w": numbers(4, 3, 3, 3)})
    found = both_ways(model, {"x": numbers(1, 3, 6, 5)})
    assert found == ["Transpose", "Conv", "Transpose", "Relu", "Sigmoid"]


def test_a_residual_network_has_one_transpose_at_each_end():
    """Between convolutions nothing computes in NHWC, since that would take a Transpose for each of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Conv", ["e", "v"], ["f"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["f", "e"], ["y"]),
    ]
    weights = {"w": numbers(4, 3, 3, 3), "v": numbers(4, 4, 3, 3)}
    model = model_of(17, nodes, {"x": (1, 3, 6, 5)}, ["y"], weights)
    found = both_ways(model, {"x": numbers(1, 3, 6, 5)})
    assert found == ["Transpose", "Conv", "Relu", "Conv", "Add", "Relu", "Conv", "Add", "Transpose"]


def test_constant_nodes_are_put_in_order():
    value = helper.make_tensor("value", 1, (3, 1, 1), [1.0, 2.0, 3.0])
    nodes = [
        helper.make_node("Constant", [], ["k"], value=value),
        helper.make_node("Mul", ["x", "k"], ["y"]),
    ]
    model = model_of(17, nodes, {"x": (1, 3, 2, 4)}, ["y"])
    assert both_ways(model, {"x": numbers(1, 3, 2, 4)}) == ["Mul"]


def test_a_model_that_transposes_by_itself_loses_its_transposes():
    """An image model of TensorFlow: NHWC outside, NCHW inside."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=TO_FIRST),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=TO_LAST),
        helper.make_node("Add", ["c", "bias"], ["y"]),
    ]
    weights = {"w": numbers(4, 3, 3, 3), "bias": numbers(4)}
    model = model_of(17, nodes, {"x": (1, 6, 5, 3)}, ["y"], weights)
    found, _ = change(model, ChannelsFirst(), {"x": numbers(1, 6, 5, 3)}, TO_FIRST)
    assert found == ["Conv", "Add"]


def test_several_readers_and_other_ranks():
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2]),
        helper.make_node("AveragePool", ["x"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Add", ["c", "v"], ["y"]),
        helper.make_node("Flatten", ["c"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (1, 3, 6, 5), "v": (4,)}, ["y", "z"])
    found = both_ways(model, {"x": numbers(1, 3, 6, 5), "v": numbers(4)})
    assert Counter(found)["Transpose"] == 2


def test_names_of_nodes_stay_unique():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "x/Transpose"),
        helper.make_node("Relu", ["a"], ["y"], "y/Transpose"),
    ]
    model = model_of(17, nodes, {"x": (1, 3, 2, 4)}, ["y"], {"w": numbers(4, 4)})
    for realizer, order in (
        (ChannelsLast(), TO_LAST),
        (ChannelsFirst(), TO_FIRST),
        (ChannelsLast(), TO_LAST),
    ):
        change(model, realizer, {"x": numbers(*model.graph.inputs[0].shape)}, order)
        names = [node.name for node in model.graph]
        assert len(names) == len(set(names))


def test_what_stays():
    unchanged(model_of(17, [helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"]), ChannelsLast())
    model = model_of(17, [helper.make_node("Flatten", ["x"], ["y"])], {"x": (2, 3, 4, 5)}, ["y"])
    feed = {"x": numbers(2, 3, 4, 5)}
    assert both_ways(model, feed) == ["Transpose", "Flatten"]

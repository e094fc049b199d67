"""Interfaces in NHWC."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import ChannelsLast

from .checks import OPSETS, check, model_of, numbers, operators, run, unchanged


def compare(model, feed, expected_operators):
    expected = run(model, feed)
    names = [[v.name for v in values] for values in (model.graph.inputs, model.graph.outputs)]
    assert ChannelsLast()(model).modified
    check(model)
    assert [[v.name for v in values] for values in (model.graph.inputs, model.graph.outputs)] == names
    given = {k: a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for k, a in feed.items()}
    for wanted, found in zip(expected, run(model, given), strict=True):
        back = found.transpose(0, 3, 1, 2) if found.ndim == 4 else found
        np.testing.assert_array_equal(back, wanted)
    assert operators(model) == expected_operators
    unchanged(model, ChannelsLast())


@pytest.mark.parametrize("opset", OPSETS)
def test_transposes_move_to_the_operators_that_need_them(opset):
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(opset, nodes, {"x": ("n", 3, 6, 5)}, ["y"], {"w": numbers(4, 3, 3, 3)})
    wanted = ["Sigmoid", "Tanh", "Transpose", "Conv", "Transpose", "Relu"]
    compare(model, {"x": numbers(2, 3, 6, 5)}, wanted)
    assert [str(dim) for dim in model.graph.inputs[0].shape] == ["n", "6", "5", "3"]


def test_element_wise_models_need_no_transposes():
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    model = model_of(17, nodes, {"x": (1, 3, 2, 4)}, ["y"])
    compare(model, {"x": numbers(1, 3, 2, 4)}, ["Relu", "Tanh"])


def test_several_readers_and_other_ranks():
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2]),
        helper.make_node("AveragePool", ["x"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Add", ["c", "v"], ["y"]),
        helper.make_node("Flatten", ["c"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (1, 3, 6, 5), "v": (4,)}, ["y", "z"])
    wanted = ["Transpose", "MaxPool", "AveragePool", "Add", "Add", "Flatten", "Transpose"]
    compare(model, {"x": numbers(1, 3, 6, 5), "v": numbers(4)}, wanted)


def test_models_without_images_stay():
    unchanged(model_of(17, [helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"]), ChannelsLast())

"""Flatten is written as Reshape, and Reshape as Flatten."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import FlattenToReshape, ReshapeToFlatten

from .checks import OPSETS, model_of, numbers, realized, unchanged


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("axis", "shape", "target"),
    [
        (1, (2, 3, 4), [2, 12]),
        (0, (2, 3, 4), [1, 24]),
        (3, (2, 3, 4), [24, 1]),
        (1, ("n", 3, 4), [-1, 12]),
        (2, (2, 3, "n"), [6, -1]),
    ],
)
def test_there_and_back(opset, axis, shape, target):
    nodes = [helper.make_node("Flatten", ["x"], ["y"], axis=axis)]
    model = model_of(opset, nodes, {"x": shape}, ["y"])
    feed = {"x": numbers(2, 3, 4)}
    assert realized(model, FlattenToReshape(), feed) == ["Reshape"]
    assert model.graph[0].inputs[1].const_value.numpy().tolist() == target
    assert realized(model, ReshapeToFlatten(), feed) == ["Flatten"]
    assert (
        model.graph[0].attributes.get("axis", None) is None or model.graph[0].attributes["axis"].value == axis
    )


@pytest.mark.parametrize("shape", [("n", "m", 4), (0, "n", 4), (0, 3, 4)])
def test_sizes_that_a_shape_cannot_say_stay(shape):
    nodes = [helper.make_node("Flatten", ["x"], ["y"])]
    unchanged(model_of(17, nodes, {"x": shape}, ["y"]), FlattenToReshape())


@pytest.mark.parametrize(("target", "axis"), [([0, -1], 1), ([0, 12], 1), ([-1, 4], 2), ([1, 24], 0)])
def test_reshapes_that_flatten(target, axis):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    model = model_of(17, nodes, {"x": (2, 3, 4)}, ["y"], {"s": np.array(target)})
    assert realized(model, ReshapeToFlatten(), {"x": numbers(2, 3, 4)}) == ["Flatten"]
    found = model.graph[0].attributes.get("axis")
    assert (1 if found is None else found.value) == axis


@pytest.mark.parametrize("target", [[4, 6], [2, 3, 4], [24], [3, 8]])
def test_other_reshapes_stay(target):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    unchanged(model_of(17, nodes, {"x": (2, 3, 4)}, ["y"], {"s": np.array(target)}), ReshapeToFlatten())

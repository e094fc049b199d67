"""Causal convolutions become CausalConvWithState; other convolutions stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import FuseCausalConvolutions

from .checks import model_of, numbers, realized, unchanged

SHAPE = (2, 3, 7)


def causal_model(opset: int = 28, cut: str = "x", **options: object) -> ir.Model:
    """A convolution, a Slice to the length, and SiLU; `cut` names the bounds of the Slice."""
    attributes = {"group": 3, "pads": [3, 3], "kernel_shape": [4], **options}
    bounds = {"x": ["zero", "length", "axis"], "later": ["three", "end", "axis"]}
    bounds["steps"] = ["zero", "end", "axis", "two"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("Slice", ["c", *bounds[cut]], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["g"]),
        helper.make_node("Mul", ["s", "g"], ["y"]),
    ]
    channels = SHAPE[1] // attributes["group"]
    numbers_of_slices = {"zero": 0, "two": 2, "three": 3, "length": SHAPE[2], "end": 14, "axis": 2}
    weights = {"w": numbers(3, channels, 4), "b": numbers(3, seed=1)}
    weights |= {name: np.array([number]) for name, number in numbers_of_slices.items()}
    return model_of(opset, nodes, {"x": SHAPE}, ["y"], weights)


def test_the_slice_and_the_activation_become_part_of_the_operator() -> None:
    model = causal_model()
    feed = {"x": numbers(*SHAPE, seed=2)}
    assert realized(model, FuseCausalConvolutions(), feed, 1e-5) == ["CausalConvWithState"]


def test_a_convolution_that_is_padded_at_its_start() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], group=3, pads=[1, 0]),
        helper.make_node("Sigmoid", ["c"], ["g"]),
        helper.make_node("Mul", ["c", "g"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["y"]),
    ]
    model = model_of(27, nodes, {"x": SHAPE}, ["y"], {"w": numbers(3, 1, 2)})
    feed = {"x": numbers(*SHAPE, seed=2)}
    # Another node reads the convolution without the activation.
    operators = ["CausalConvWithState", "Sigmoid", "Mul", "Add"]
    assert realized(model, FuseCausalConvolutions(), feed, 1e-5) == operators


@pytest.mark.parametrize(
    "options",
    [{"opset": 26}, {"group": 1}, {"pads": [2, 4]}, {"dilations": [2], "pads": [3, 6]}, {"cut": "later"}],
)
def test_other_convolutions_stay(options: dict[str, object]) -> None:
    unchanged(causal_model(**options), FuseCausalConvolutions())


def test_a_slice_of_each_second_element_stays() -> None:
    unchanged(causal_model(pads=[3, 10], cut="steps"), FuseCausalConvolutions())

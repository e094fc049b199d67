"""Models without Dropout and losses."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import StripTraining
from opsetta.registration import GraphError

from .checks import OPSETS, check, model_of, numbers, operators, realized, run, unchanged


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("mask", [True, False])
def test_dropout(opset, mask):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Dropout", ["r"], ["d", "m"] if mask else ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    model = model_of(opset, nodes, {"x": (2, 3)}, ["y", "m"] if mask else ["y"])
    if mask and opset < 12:
        with pytest.raises(GraphError, match="mask"):
            StripTraining()(model)
        return
    found = realized(model, StripTraining(), {"x": numbers(2, 3)})
    assert sorted(found) == sorted(["Relu", "Neg", *["ConstantOfShape"] * mask])


def test_dropout_at_the_ends():
    """A Dropout between an input and an output leaves a copy."""
    model = model_of(17, [helper.make_node("Dropout", ["x"], ["y"])], {"x": (2,)}, ["y"])
    assert realized(model, StripTraining(), {"x": numbers(2)}) == ["Identity"]


def with_loss(
    op_type="SoftmaxCrossEntropyLoss", outputs=("loss", "log"), kept=("loss", "log"), opset=13, extra=()
):
    nodes = [
        helper.make_node("Relu", ["x"], ["scores"]),
        helper.make_node(op_type, ["scores", "labels"], list(outputs)),
        *extra,
    ]
    shapes = {"x": (2, 5, 3), "labels": ("INT64", 2, 3)}
    return model_of(opset, nodes, shapes, kept)


@pytest.mark.parametrize("opset", [12, 13, 17, 21])
def test_a_loss_goes_with_its_labels_and_leaves_its_logarithms(opset):
    model = with_loss(opset=opset)
    x, labels = numbers(2, 5, 3), np.ones((2, 3), np.int64)
    _, expected = run(model, {"x": x, "labels": labels})
    assert StripTraining()(model).modified
    check(model)
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert [value.name for value in model.graph.outputs] == ["log"]
    assert "LogSoftmax" in operators(model)
    np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)
    unchanged(model, StripTraining())


def test_a_model_whose_only_output_is_a_loss_gives_the_scores():
    extra = [helper.make_node("Mul", ["loss", "loss"], ["total"])]
    model = with_loss("NegativeLogLikelihoodLoss", ("loss",), ("total",), extra=extra)
    assert StripTraining()(model).modified
    check(model)
    assert operators(model) == ["Relu"]
    assert [value.name for value in model.graph.outputs] == ["scores"]
    x = numbers(2, 5, 3)
    np.testing.assert_array_equal(run(model, {"x": x})[0], np.maximum(x, 0))


def test_the_order_of_other_outputs_stays():
    extra = [helper.make_node("Neg", ["x"], ["other"])]
    model = with_loss(outputs=("loss",), kept=("other", "loss"), extra=extra)
    assert StripTraining()(model).modified
    assert [value.name for value in model.graph.outputs] == ["other", "scores"]


def test_a_loss_of_an_input_is_refused():
    nodes = [helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"])]
    model = model_of(13, nodes, {"x": (2, 5), "labels": ("INT64", 2)}, ["loss"])
    with pytest.raises(GraphError, match="nothing remains"):
        StripTraining()(model)


def test_models_for_inference_stay_with_their_unused_inputs():
    model = model_of(17, [helper.make_node("Relu", ["x"], ["y"])], {"x": (2,), "unused": (1,)}, ["y"])
    unchanged(model, StripTraining())
    assert isinstance(model, ir.Model)
    assert len(model.graph.inputs) == 2

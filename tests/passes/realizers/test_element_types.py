"""Weights and activations of other floating-point types."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from opsetta.passes.realizers import ConvertElementTypes
from opsetta.registration import GraphError, UsageError

from .checks import OPSETS, F, check, model_of, numbers, operators, realized, unchanged


def model(opset=17):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Mul", ["r", "two"], ["y"]),
    ]
    weights = {"w": numbers(4, 4), "b": numbers(4), "two": np.float32(2)}
    return model_of(opset, nodes, {"x": (2, 4)}, ["y"], weights), {"x": numbers(2, 4)}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ("FP16", ["Cast", "MatMul", "Add", "Relu", "Mul", "Cast"]),
        ("FP16-FP32", ["Cast", "MatMul", "Cast", "Add", "Relu", "Mul"]),
        ("FP32-FP16", ["Cast", "Cast", "MatMul", "Cast", "Add", "Relu", "Mul", "Cast"]),
    ],
)
def test_casts_stand_at_the_seams(types, expected, opset):
    plain, feed = model(opset)
    assert realized(plain, ConvertElementTypes(types), feed, 3e-2) == expected
    stored = "FLOAT" if types.startswith("FP32") else "FLOAT16"
    assert plain.graph.initializers["w"].dtype.name == stored
    assert [v.dtype.name for v in (*plain.graph.inputs, *plain.graph.outputs)] == ["FLOAT", "FLOAT"]


def test_weights_of_bfloat16():
    plain, feed = model()
    assert realized(plain, ConvertElementTypes("BF16-FP32"), feed, 1e-1).count("Cast") == 2
    computed, _ = model()
    assert ConvertElementTypes("BF16")(computed).modified
    check(computed)
    unchanged(computed, ConvertElementTypes("BF16"))


def test_what_is_that_type_stays():
    unchanged(model()[0], ConvertElementTypes("FP32"))


@pytest.mark.parametrize(
    ("converts_interface", "expected"),
    [
        (False, ["Cast", "Cast", "Mul", "Greater", "Cast", "Cast", "Relu", "Cast", "Cast"]),
        (True, ["Cast", "Mul", "Greater", "Relu", "Cast"]),
    ],
)
def test_casts_do_not_follow_casts(converts_interface, expected):
    """Casts of the model to FLOAT16, of integers, and of a bool that is an output."""
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=F),
        helper.make_node("Mul", ["f", "x"], ["y"]),
        helper.make_node("Greater", ["x", "f"], ["b"]),
        helper.make_node("Cast", ["b"], ["z"], to=F),
        helper.make_node("Cast", ["x"], ["half"], to=10),
        helper.make_node("Relu", ["half"], ["r"]),
        helper.make_node("Cast", ["r"], ["w"], to=F),
    ]
    plain = model_of(17, nodes, {"i": ("INT64", 4), "x": (4,)}, ["y", "z", "w"])
    assert ConvertElementTypes("FP16", converts_interface=converts_interface)(plain).modified
    check(plain)
    assert operators(plain) == expected
    assert [value.name for value in plain.graph.outputs] == ["y", "z", "w"]
    casts = [node for node in plain.graph if node.op_type == "Cast"]
    sources = [node.inputs[0].producer() for node in casts]
    assert all(source is None or source.op_type != "Cast" for source in sources)


def test_an_operator_without_the_type_computes_in_float():
    """Sin takes no BFLOAT16 before opset 22; onnxruntime has no kernels of that type, so nothing runs."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["h"]),
        helper.make_node("Sin", ["h"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["y"]),
    ]
    plain = model_of(17, nodes, {"x": (2,)}, ["y"], {"b": numbers(2)})
    assert ConvertElementTypes("BF16")(plain).modified
    check(plain)
    assert operators(plain) == ["Cast", "Add", "Cast", "Sin", "Cast", "Mul", "Cast"]
    unchanged(plain, ConvertElementTypes("BF16"))


def test_the_scales_of_a_resize_stay():
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Resize", ["h", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    plain = model_of(13, nodes, {"x": (1, 1, 2, 2)}, ["y"], weights)
    realized(plain, ConvertElementTypes("FP16"), {"x": numbers(1, 1, 2, 2)}, 1e-1)
    assert plain.graph.initializers["scales"].dtype == ir.DataType.FLOAT


def test_branches_keep_their_types():
    def branch(name, op):
        info = helper.make_tensor_value_info(name, F, (4,))
        return helper.make_graph([helper.make_node(op, ["h", "b"], [name])], name, [], [info])

    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["i"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul")),
        helper.make_node("Add", ["i", "h"], ["y"]),
    ]
    plain = model_of(17, nodes, {"x": (4,), "c": ("BOOL",)}, ["y"], {"b": numbers(4)})
    realized(plain, ConvertElementTypes("FP16"), {"x": numbers(4), "c": np.array(True)}, 1e-2)


def test_large_numbers_stay_finite():
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    plain = model_of(17, nodes, {"x": (2,)}, ["y"], {"w": np.array([-3e38, -np.inf], np.float32)})
    assert ConvertElementTypes("FP16")(plain).modified
    assert plain.graph.initializers["w"].const_value.numpy().tolist() == [-65504.0, -np.inf]


@pytest.mark.parametrize("types", ["FP16", "FP16-FP32"])
def test_a_node_that_divides_by_numbers_beyond_the_range_computes_in_float(types):
    """A variance of 65504 in the place of 1e7 would make the results twelve times as large."""
    nodes = [
        helper.make_node("BatchNormalization", ["x", "two", "two", "two", "large"], ["a"]),
        helper.make_node("Div", ["x", "large"], ["b"]),
        helper.make_node("Mul", ["x", "half"], ["c"]),
        helper.make_node("Concat", ["a", "b", "c"], ["y"], axis=0),
    ]
    half, two = np.full(4, 0.5, np.float32), np.full(4, 2, np.float32)
    weights = {"half": half, "two": two, "large": np.full(4, 1e7, np.float32)}
    plain = model_of(17, nodes, {"x": (2, 4)}, ["y"], weights)
    conversion = ConvertElementTypes(types)
    realized(plain, conversion, {"x": 1000 * numbers(2, 4)}, 0.5)
    assert not conversion.limited
    assert plain.graph.initializers["large"].dtype.name == "FLOAT"


def test_sequences_stay():
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "zero"], ["y"]),
    ]
    plain = model_of(17, nodes, {"x": (2, 3)}, ["y"], {"zero": np.int64(0)})
    sequence = plain.graph.node(0).outputs[0]
    plain.graph.outputs.append(sequence)
    assert ConvertElementTypes("FP16", converts_interface=True)(plain).modified
    check(plain)
    assert sequence is plain.graph.outputs[1]


def test_integers_and_doubles_stay():
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    unchanged(model_of(17, nodes, {"x": ("DOUBLE", 2)}, ["y"]), ConvertElementTypes("FP16"))


def test_what_is_refused():
    with pytest.raises(UsageError, match="'FP8'; realize also takes .* Q4_0 for weights"):
        ConvertElementTypes("FP8")
    with pytest.raises(GraphError, match="cannot cast to BFLOAT16"):
        ConvertElementTypes("BF16")(model(9)[0])

"""Converted files go through the ONNX passes, and still mean what they meant."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from opsetta.exporter.lowering.conversion import convert
from opsetta.registration import MAY_OVERWRITE

from .test_conversion import converted, model, operators, run, value

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def rows(name):
    return value(name, (2, 3))


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs, [output], name=f"make_{output}", **attributes)


def test_what_is_computed_twice_is_computed_once():
    nodes = [node("Exp", ["x"], "a"), node("Exp", ["x"], "b"), node("Add", ["a", "b"], "y")]
    found = converted(model(18, nodes, [rows("x")], [rows("y")]), 9)
    assert operators(found) == ["Exp", "Add"]
    np.testing.assert_allclose(run(found, x=ROWS)[0], 2 * np.exp(ROWS), rtol=1e-6)


def test_random_operators_and_those_of_other_domains_stay_apart():
    nodes = [
        node("RandomNormalLike", ["x"], "a"),
        node("RandomNormalLike", ["x"], "b"),
        node("Bernoulli", ["x"], "c"),
        node("Bernoulli", ["x"], "d"),
        node("Anything", ["x"], "e", domain="com.example"),
        node("Anything", ["x"], "f", domain="com.example"),
        node("Sum", ["a", "b", "c", "d", "e", "f"], "y"),
    ]
    proto = model(18, nodes, [rows("x")], [rows("y")], imports=[("com.example", 1)])
    found = ir.to_proto(convert(ir.from_proto(proto), 17))
    assert operators(found) == operators(proto)
    assert not any(entry.name.startswith("opsetta") for each in found.graph.node for entry in each.attribute)


def test_outputs_that_are_one_value_keep_their_names_and_metadata():
    nodes = [
        node("Relu", ["x"], "hidden"),
        node("Relu", ["x"], "first"),
        node("Identity", ["hidden"], "second"),
        node("Neg", ["hidden"], "third"),
    ]
    names = ["third", "second", "first"]
    proto = model(18, nodes, [rows("x")], [rows(name) for name in names])
    for entry in proto.graph.output:
        entry.doc_string = f"about {entry.name}"
        entry.metadata_props.add(key="unit", value=entry.name)
    found = converted(proto, 13)
    assert [entry.name for entry in found.graph.output] == names
    assert [entry.doc_string for entry in found.graph.output] == [f"about {name}" for name in names]
    assert [entry.metadata_props[0].value for entry in found.graph.output] == names
    relu = np.maximum(ROWS - 2, 0)
    for one, other in zip(run(found, x=ROWS - 2), (-relu, relu, relu), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("opset", [8, 13])
def test_inputs_and_weights_may_be_outputs(opset):
    proto = model(18, [node("Add", ["x", "w"], "y")], [rows("x")], [rows("w_out"), rows("y")], {"w": ROWS})
    proto.graph.node.append(node("Identity", ["w"], "w_out"))
    source = ir.from_proto(proto)
    before = ir.to_proto(source).SerializeToString(deterministic=True)
    found = ir.to_proto(convert(source, opset))
    onnx.checker.check_model(found, full_check=True)
    assert ir.to_proto(source).SerializeToString(deterministic=True) == before
    assert [entry.name for entry in found.graph.output] == ["w_out", "y"]


def test_a_weight_that_is_an_output_is_copied_under_its_name():
    proto = model(18, [node("Relu", ["x"], "y")], [rows("x")], [rows("w"), rows("y")], {"w": ROWS})
    source = ir.from_proto(proto)
    before = ir.to_proto(source).SerializeToString(deterministic=True)
    found = converted(proto, 13)
    convert(source, 13)
    assert ir.to_proto(source).SerializeToString(deterministic=True) == before
    assert [entry.name for entry in found.graph.output] == ["w", "y"]
    np.testing.assert_array_equal(run(found, x=ROWS)[0], ROWS)


def quantized_product(name):
    nodes = [
        node("DequantizeLinear", ["x", "scale"], "a"),
        node("DequantizeLinear", ["w", "scale"], "b"),
        node("MatMul", ["a", "b"], "p"),
        node("Add", ["p", name], "y"),
    ]
    weights = {
        "w": np.eye(3, dtype=np.uint8),
        "scale": np.float32(0.5),
        name: np.arange(3, dtype=np.float32),
    }
    for each in nodes:
        each.name = ""
    return model(18, nodes, [value("x", (2, 2, 3), TensorProto.UINT8)], [value("y", (2, 2, 3))], weights)


def test_names_that_passes_give_are_free_in_the_file():
    proto = quantized_product("row_shape")
    found = converted(proto, 13)
    assert "Reshape" in operators(found)
    feed = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    np.testing.assert_allclose(run(found, x=feed)[0], run(proto, x=feed)[0])


def test_annotations_are_made_anew():
    nodes = [
        node("Exp", ["x"], "a"),
        node("Exp", ["x"], "b"),
        node("Neg", ["a"], "n"),
        node("Sum", ["n", "b"], "y"),
    ]
    proto = model(18, nodes, [rows("x")], [rows("y")])
    proto.graph.node[2].metadata_props.add(key=MAY_OVERWRITE, value="0:0")
    found = converted(proto, 13)
    notes = {each.op_type: {entry.key for entry in each.metadata_props} for each in found.graph.node}
    assert MAY_OVERWRITE not in notes["Neg"]
    assert MAY_OVERWRITE in notes["Sum"]


def test_constants_of_our_own_are_nodes_where_initializers_are_inputs():
    nodes = [node("ReduceSum", ["x"], "s", keepdims=0), node("GreaterOrEqual", ["x", "s"], "y")]
    proto = model(16, nodes, [rows("x")], [value("y", (2, 3), TensorProto.BOOL)])
    found = converted(proto, 8)
    assert [entry.name for entry in found.graph.input] == ["x"]
    np.testing.assert_array_equal(run(found, x=ROWS)[0], ROWS.sum() <= ROWS)

"""The argument convention: what goes onto a source node comes back exactly."""

import math
import struct

import hypothesis.strategies as st
import onnx_ir as ir
import pytest
from hypothesis import given
from onnx_ir import DataType

from opsetta.registration import Device, GraphError, Layout, MemoryFormat
from opsetta.registration.arguments import (
    arguments,
    overloaded_name,
    qualified_name,
    replace_arguments,
    source_node,
)

VALUES = [ir.Value(name=f"v{i}") for i in range(4)]

floats = st.floats() | st.sampled_from(
    [math.inf, -math.inf, math.nan, -0.0, 0.0, 5e-324, 1.7976931348623157e308]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | floats
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(list(DataType))
    | st.sampled_from([Device("cpu"), Device("cuda:0"), Layout("strided"), MemoryFormat("channels_last")])
    | st.complex_numbers()
    | st.sampled_from(VALUES)
)
things = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
calls = st.dictionaries(names, things, max_size=6)


def same(a, b) -> bool:
    """Equality that tells True from 1, 0.0 from -0.0, a device from a text, and knows nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b if isinstance(a, ir.Value) else a == b


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for name in wanted:
        assert same(found[name], wanted[name]), (name, found[name], wanted[name])


@given(calls)
def test_arguments_round_trip(call):
    node = source_node("aten::op", call, num_outputs=1)
    assert_same(arguments(node), call)


@given(calls, calls)
def test_replaced_arguments_round_trip(before, after):
    node = source_node("aten::op", before, num_outputs=2)
    outputs = list(node.outputs)
    replace_arguments(node, after)
    assert_same(arguments(node), after)
    assert list(node.outputs) == outputs
    used = {id(value) for value in node.inputs}
    for value in VALUES:
        assert (node in {use.node for use in value.uses()}) == (id(value) in used)
    replace_arguments(node, {})


@given(calls)
def test_arguments_survive_a_file(call):
    graph = ir.Graph(VALUES, [], nodes=[], opset_imports={"aten": 1}, name="g")
    node = source_node("aten::op", call, overload="Tensor", num_outputs=1, node_name="n")
    try:
        node.outputs[0].name = "out"
        graph.append(node)
        model = ir.from_proto(ir.to_proto(ir.Model(graph, ir_version=10)))
    finally:
        graph.remove(node)
        replace_arguments(node, {})
        graph.inputs.clear()
    [found] = list(model.graph)
    by_name = {value.name: value for value in model.graph.inputs}

    def renamed(item):
        if isinstance(item, list):
            return [renamed(member) for member in item]
        return by_name[item.name] if isinstance(item, ir.Value) else item

    assert (found.domain, found.op_type, found.overload) == ("aten", "op", "Tensor")
    assert_same(arguments(found), {name: renamed(item) for name, item in call.items()})


def test_values_are_inputs_in_order_of_their_appearance():
    a, b, c, _ = VALUES
    node = source_node("aten::cat", {"tensors": [b, 1, [a]], "other": c}, num_outputs=1)
    assert list(node.inputs) == [b, a, c]


def test_a_tuple_comes_back_as_a_list():
    assert arguments(source_node("aten::op", {"size": (1, (2,))}, num_outputs=1)) == {"size": [1, [2]]}


def test_what_comes_back_is_the_callers_own():
    node = source_node("aten::op", {"size": [1, 2]}, num_outputs=1)
    arguments(node)["size"].append(3)
    assert arguments(node) == {"size": [1, 2]}


def test_a_string_that_looks_like_an_encoding_stays_a_string():
    node = source_node("aten::op", {"mode": '{"value":0}', "value": "inf"}, num_outputs=1)
    assert arguments(node) == {"mode": '{"value":0}', "value": "inf"}


@pytest.mark.parametrize("thing", [object(), {1: 2}, {3}, b"bytes", range(3)])
def test_an_argument_of_a_foreign_type_is_refused(thing):
    with pytest.raises(GraphError, match=type(thing).__name__):
        source_node("aten::op", {"x": [1, thing]}, num_outputs=1)


def test_a_name_without_a_namespace_is_refused():
    with pytest.raises(GraphError, match="qualified"):
        source_node("relu", {}, num_outputs=1)


def test_a_node_without_arguments_is_refused():
    with pytest.raises(GraphError, match="Relu"):
        arguments(ir.Node("", "Relu", [VALUES[0]], num_outputs=1, name="n"))


def test_names():
    node = source_node("aten::add", {}, overload="Tensor", num_outputs=1)
    assert qualified_name(node) == "aten::add"
    assert overloaded_name(node) == "aten::add.Tensor"
    plain = ir.Node("", "Relu", [VALUES[0]], num_outputs=1)
    assert qualified_name(plain) == overloaded_name(plain) == "Relu"


def test_further_attributes_and_metadata_stay():
    inner = ir.Graph([], [], nodes=[], name="body")
    attribute = ir.Attr("body", ir.AttributeType.GRAPH, inner)
    node = source_node("prim::If", {"x": 1}, num_outputs=1, attributes=[attribute], metadata_props={"k": "v"})
    replace_arguments(node, {"x": 2})
    assert node.attributes["body"].value is inner
    assert node.metadata_props["k"] == "v"
    assert arguments(node) == {"x": 2}

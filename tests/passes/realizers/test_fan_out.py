"""A value with several readers gets a copy for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import ExplicitFanOut

from .checks import OPSETS, F, model_of, numbers, realized, unchanged


@pytest.mark.parametrize("opset", OPSETS)
def is_explicit(graph) -> bool:
    """Whether each value is read once, or by Identities only."""
    outputs = list(graph.outputs)
    for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
        readers = [use.node.op_type for use in value.uses() if use.node.graph is graph]
        count = len(readers) + outputs.count(value)
        if count > 1 and (value in outputs or set(readers) != {"Identity"}):
            return False
    return True


@pytest.mark.parametrize("opset", OPSETS)
def test_each_reader_gets_a_copy(opset):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Mul", ["y", "y"], ["square"]),
        helper.make_node("MatMul", ["square", "w"], ["a"]),
        helper.make_node("MatMul", ["y", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["z"]),
    ]
    model = model_of(opset, nodes, {"x": (3, 3)}, ["z"], {"w": numbers(3, 3)})
    found = realized(model, ExplicitFanOut(), {"x": numbers(3, 3)})
    assert found == ["Relu", "Identity", "Identity", "Mul", "MatMul", "Identity", "MatMul", "Add"]
    assert is_explicit(model.graph)


def test_an_output_that_is_read_keeps_its_name():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    model = model_of(17, nodes, {"x": (3,)}, ["y", "z"])
    assert realized(model, ExplicitFanOut(), {"x": numbers(3)}) == ["Relu", "Identity", "Neg", "Identity"]
    assert is_explicit(model.graph)


def test_identities_are_readers_with_a_copy():
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["i"]),
        helper.make_node("Add", ["y", "i"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (3,)}, ["z"])
    found = realized(model, ExplicitFanOut(), {"x": numbers(3)})
    assert found == ["Relu", "Identity", "Identity", "Add"]
    assert is_explicit(model.graph)


def test_inputs_of_the_graph():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Add", ["x", "y"], ["z"])]
    model = model_of(17, nodes, {"x": (3,)}, ["z"])
    found = realized(model, ExplicitFanOut(), {"x": numbers(3)})
    assert found == ["Identity", "Relu", "Identity", "Add"]


def test_values_of_one_reader_stay():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    unchanged(model_of(17, nodes, {"x": (3,)}, ["z"]), ExplicitFanOut())


def test_constants_and_weights_stay():
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=2.0),
        helper.make_node("Mul", ["x", "c"], ["y"]),
        helper.make_node("Mul", ["y", "c"], ["z"]),
    ]
    unchanged(model_of(17, nodes, {"x": (3,)}, ["z"]), ExplicitFanOut())


def test_what_branches_read_is_one_reader_per_node():
    def branch(name, *ops):
        nodes = [helper.make_node(op, ["y"], [f"{name}{i}"]) for i, op in enumerate(ops)]
        nodes.append(helper.make_node("Sum", [f"{name}{i}" for i in range(len(ops))], [name]))
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, F, (3,))])

    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Neg", ["y"], ["n"]),
        helper.make_node(
            "If", ["c"], ["i"], then_branch=branch("t", "Abs", "Exp"), else_branch=branch("e", "Abs")
        ),
        helper.make_node("Add", ["n", "i"], ["z"]),
    ]
    model = model_of(17, nodes, {"x": (3,), "c": ("BOOL",)}, ["z"])
    found = realized(model, ExplicitFanOut(), {"x": numbers(3), "c": np.array(True)})
    assert found == ["Relu", "Identity", "Neg", "Identity", "If", "Add"]
    inside = model.graph[4].attributes["then_branch"].as_graph()
    assert [node.op_type for node in inside] == ["Identity", "Abs", "Identity", "Exp", "Sum"]

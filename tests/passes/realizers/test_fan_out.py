"""Copies for the further readers of a value."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from opsetta.passes.realizers import ExplicitFanOut

from .checks import OPSETS, F, model_of, numbers, realized, unchanged


@pytest.mark.parametrize("opset", OPSETS)
def test_each_further_reader_gets_a_copy(opset):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Mul", ["y", "y"], ["square"]),
        helper.make_node("MatMul", ["square", "w"], ["a"]),
        helper.make_node("MatMul", ["y", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["z"]),
    ]
    model = model_of(opset, nodes, {"x": (3, 3)}, ["z"], {"w": numbers(3, 3)})
    found = realized(model, ExplicitFanOut(), {"x": numbers(3, 3)})
    assert found == ["Relu", "Identity", "Mul", "MatMul", "Identity", "MatMul", "Add"]
    for node in model.graph:
        for value in node.outputs:
            assert len([use for use in value.uses() if use.node.op_type != "Identity"]) <= 1


def test_an_output_is_the_first_reader_and_keeps_its_name():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    model = model_of(17, nodes, {"x": (3,)}, ["y", "z"])
    assert realized(model, ExplicitFanOut(), {"x": numbers(3)}) == ["Relu", "Identity", "Neg"]


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
    assert found == ["Relu", "Neg", "Identity", "If", "Add"]
    inside = model.graph[3].attributes["then_branch"].as_graph()
    assert [node.op_type for node in inside] == ["Abs", "Identity", "Exp", "Sum"]

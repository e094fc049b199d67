"""Parts of models between named values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from opsetta.passes.realizers import SliceGraph, slice_graph
from opsetta.registration import GraphError

from .checks import OPSETS, F, check, model_of, numbers, operators, run


def model(opset=17):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    weights = {"w": numbers(3, 3), "bias": numbers(3)}
    return model_of(opset, nodes, {"x": (2, 3), "s": (2, 3)}, ["y"], weights)


@pytest.mark.parametrize("opset", OPSETS)
def test_a_part_computes_what_the_whole_computes(opset):
    whole = model(opset)
    first, second = slice_graph(whole, ["x"], ["b"]), slice_graph(whole, ["b", "s"], ["y"])
    feed = {"x": numbers(2, 3), "s": numbers(2, 3, seed=1)}
    for part in (first, second):
        check(part)
    [b] = run(first, {"x": feed["x"]})
    [y] = run(second, {"b": b, "s": feed["s"]})
    np.testing.assert_array_equal(y, run(whole, feed)[0])
    assert operators(first) == ["MatMul", "Add"]
    assert operators(second) == ["Relu", "Mul"]
    assert list(first.graph.initializers) == ["w", "bias"] or set(first.graph.initializers) == {"w", "bias"}
    assert not second.graph.initializers
    assert operators(whole) == ["MatMul", "Add", "Relu", "Mul"]


def test_a_second_cut_changes_nothing():
    result = SliceGraph(["x"], ["b"])(model())
    assert result.modified
    assert not SliceGraph(["x"], ["b"])(result.model).modified


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["x"], ["y"], "also depend on 's'"),
        (["nothing"], ["y"], "no value 'nothing'"),
        (["x", "s"], ["b"], "no output of the slice depends on input 's'"),
        (["x", "x"], ["b"], "named twice"),
        (["x"], [], "needs at least one output"),
    ],
)
def test_what_is_refused(inputs, outputs, message):
    with pytest.raises(GraphError, match=message):
        slice_graph(model(), inputs, outputs)


def test_what_a_branch_reads_belongs_to_the_part():
    def branch(name, op):
        inside = [helper.make_node(op, ["b", f"{name}_w"], [name])]
        info = helper.make_tensor_value_info(name, F, (3,))
        return helper.make_graph(inside, name, [], [info], [numpy_helper.from_array(numbers(3), f"{name}_w")])

    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul")),
    ]
    whole = model_of(17, nodes, {"x": (3,), "c": ("BOOL",)}, ["y"])
    part = slice_graph(whole, ["a", "c"], ["y"])
    check(part)
    assert operators(part) == ["Abs", "If"]
    feed = {"x": numbers(3), "c": np.array(True)}
    np.testing.assert_array_equal(run(part, {"a": -feed["x"], "c": feed["c"]})[0], run(whole, feed)[0])

"""While as Loop: with a trip count or a condition, and with variables whose shape changes."""

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph

from .graphs import FLOAT, INT32, Graph

X = np.float32([[1, 2], [3, 4]])
OPSETS = pytest.mark.parametrize("opset", [7, 11, 24])
VARIABLES = [("i", INT32), ("n", INT32), ("v", FLOAT)]


def counting(comparison: str, step: int, operator: str = "AddV2", result: str = "z") -> Graph:
    """A loop from the input `start` to the input `n`, which adds 1 to v in each iteration."""
    graph = Graph()
    for name in ("start", "n"):
        graph.placeholder(name, [], INT32)
    graph.constant("v", 0.0)
    condition = graph.function("cond", VARIABLES, [("go", "DT_BOOL", "go:z:0")])
    condition.call(comparison, "go", ["i", "n"] if comparison.startswith("Less") else ["n", "i"], INT32)
    body = graph.function(
        "body", VARIABLES, [("i2", INT32, f"i2:{result}:0"), ("n2", INT32, "n"), ("v2", FLOAT, "v2:z:0")]
    )
    body.constant("step", step)
    body.constant("one", 1.0)
    body.call(operator, "i2", ["i", "step:output:0"], INT32)
    body.call("AddV2", "v2", ["v", "one:output:0"])
    graph.add("While", "loop", ["start", "n", "v"], T=[INT32, INT32, FLOAT], cond="cond", body="body")
    return graph


@OPSETS
@pytest.mark.parametrize(
    ("comparison", "step"), [("Less", 1), ("LessEqual", 2), ("Greater", 3), ("GreaterEqual", 1)]
)
def test_loops_that_count(comparison, step, opset):
    source = opsetta.SourceModel(
        capture_graph(counting(comparison, step).message, inputs=["start", "n"], outputs=["loop:2", "loop"])
    )
    program = source.lower(opset)
    [loop] = [node for node in program.model.graph if node.op_type == "Loop"]
    assert loop.inputs[0] is not None
    assert loop.inputs[1] is None
    for start, limit in ((0, 7), (2, 5), (5, 5), (9, 3), (-4, 3)):
        i, count = start, 0
        while i <= limit if comparison.endswith("Equal") else i < limit:
            i, count = i + step, count + 1
        found = program(np.int32(start), np.int32(limit))
        assert (int(found[0]), int(found[1]), found[1].dtype) == (count, i, np.int32)


@OPSETS
def test_a_loop_that_does_not_count_asks_for_each_iteration(opset):
    graph = counting("Less", 2, "Mul")
    program = opsetta.SourceModel(
        capture_graph(graph.message, inputs=["start", "n"], outputs=["loop:2"])
    ).lower(opset)
    [loop] = [node for node in program.model.graph if node.op_type == "Loop"]
    assert loop.inputs[0] is None
    for start, limit, count in ((1, 100, 7), (5, 5, 0), (3, 5, 1)):
        assert program(np.int32(start), np.int32(limit)) == count


@pytest.mark.parametrize(("start", "limit", "loops"), [(0, 3, 1), (3, 3, 0)])
def test_a_constant_number_of_iterations_is_known_before(start, limit, loops):
    graph = counting("Less", 1)
    del graph.message.node[:2]
    graph.constant("start", start)
    graph.constant("n", limit)
    program = opsetta.SourceModel(capture_graph(graph.message, outputs=["loop:2"])).lower(13)
    found = [node for node in program.model.graph if node.op_type == "Loop"]
    assert len(found) == loops
    assert [int(node.inputs[0].const_value.numpy()) for node in found] == [limit] * loops
    assert program() == limit - start


@OPSETS
def test_a_variable_may_change_its_size(opset):
    """The shape before the loop does not hold in it."""
    graph = Graph()
    graph.placeholder("x", [1, 2])
    graph.constant("i", 0)
    graph.constant("n", 3)
    condition = graph.function("cond", VARIABLES, [("go", "DT_BOOL", "go:z:0")])
    condition.call("Less", "go", ["i", "n"], INT32)
    body = graph.function(
        "body", VARIABLES, [("i2", INT32, "i2:z:0"), ("n2", INT32, "n"), ("v2", FLOAT, "v2:output:0")]
    )
    body.constant("one", 1)
    body.constant("axis", 0)
    body.call("AddV2", "i2", ["i", "one:output:0"], INT32)
    body.call("Square", "square", ["v"])
    body.add("ConcatV2", "v2", ["v", "square:y:0", "axis:output:0"], N=2, T=FLOAT, Tidx=INT32)
    graph.add("While", "loop", ["i", "n", "x"], T=[INT32, INT32, FLOAT], cond="cond", body="body")
    program = opsetta.SourceModel(capture_graph(graph.message, outputs=["loop:2"])).lower(opset)
    expected = X[:1]
    for _ in range(3):
        expected = np.concatenate([expected, expected**2])
    np.testing.assert_array_equal(program(X[:1]), expected)


def test_refused_operators_of_a_loop_are_named():
    graph = counting("Less", 1)
    graph.message.library.function[1].node_def[3].op = "MyOperator"
    source = opsetta.SourceModel(capture_graph(graph.message, outputs=["loop:2"]))
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="tf::MyOperator .* in loop/v2"):
        source.lower(13)


@OPSETS
def test_tensors_that_each_iteration_increases_are_no_counters(opset):
    graph = counting("Less", 1)
    graph.message.library.ClearField("function")
    variables = [("i", INT32), ("n", INT32), ("v", INT32), ("w", INT32)]
    condition = graph.function("cond", variables, [("go", "DT_BOOL", "go:z:0")])
    condition.call("Less", "go", ["i", "n"], INT32)
    results = [("i2", INT32, "i2:z:0"), ("n2", INT32, "n"), ("v2", INT32, "v2:z:0"), ("w2", INT32, "w2:z:0")]
    body = graph.function("body", variables, results)
    body.constant("one", 1)
    body.constant("list", [1])
    for name, step in (("i", "one"), ("v", "one"), ("w", "list")):
        body.call("AddV2", f"{name}2", [name, f"{step}:output:0"], INT32)
    del graph.message.node[-1]
    graph.constant("vector", [5, 6, 7])
    graph.constant("w", [[1]])
    graph.add("While", "loop", ["start", "n", "vector", "w"], T=[INT32] * 4, cond="cond", body="body")
    source = opsetta.SourceModel(
        capture_graph(graph.message, inputs=["start", "n"], outputs=["loop:2", "loop:3"])
    )
    vector, w = source.lower(opset)(np.int32(0), np.int32(4))
    np.testing.assert_array_equal(vector, np.int32([9, 10, 11]))
    np.testing.assert_array_equal(w, np.int32([[5]]))

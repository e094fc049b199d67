"""Loop and Scan are unrolled into the nodes of their iterations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from opsetta.passes.realizers import UnrollLoops
from opsetta.registration import GraphError

from .checks import OPSETS, F, model_of, numbers, operators, realized


def info(name: str, kind: int, *shape: int):
    return helper.make_tensor_value_info(name, kind, shape)


def loop(opset: int = 17, trips: int = 3, condition: str = "passed", collects: bool = True):
    """A loop `x = x * w + i`, which may collect its results."""
    body_nodes = [
        helper.make_node("Cast", ["i"], ["number"], to=F),
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Add", ["product", "number"], ["sum"]),
        helper.make_node("Sub", ["sum", "outer"], ["next"]),
        helper.make_node("Identity", ["next"], ["copy"]),
    ]
    inner = [numpy_helper.from_array(numbers(4, 4, seed=1), "weight")]
    if condition == "passed":
        body_nodes.append(helper.make_node("Identity", ["go"], ["on"]))
    elif condition == "false":
        inner.append(numpy_helper.from_array(np.array(False), "on"))
    else:
        body_nodes += [
            helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "number"], ["on"]),
        ]
    outputs = [info("on", TensorProto.BOOL), info("next", F, 2, 4)]
    if collects:
        outputs.append(info("copy", F, 2, 4))
    body = helper.make_graph(
        body_nodes,
        "body",
        [info("i", TensorProto.INT64), info("go", TensorProto.BOOL), info("x", F, 2, 4)],
        outputs,
        inner,
    )
    results = ["last", "all"] if collects else ["last"]
    nodes = [helper.make_node("Loop", ["trips", "start", "a"], results, "loop", body=body)]
    weights = {"trips": np.array(trips), "start": np.array(True)}
    model = model_of(opset, nodes, {"a": (2, 4), "outer": (2, 4)}, results, weights)
    return model, {"a": numbers(2, 4), "outer": numbers(2, 4, seed=2)}


@pytest.mark.parametrize("opset", OPSETS)
def test_a_loop_of_constant_trip_count(opset):
    model, feed = loop(opset)
    found = realized(model, UnrollLoops(), feed)
    step = ["Cast", "MatMul", "Add", "Sub"]
    assert [name for name in found if name != "Identity"] == [*step * 3, *["Unsqueeze"] * 3, "Concat"]
    products = [node for node in model.graph if node.op_type == "MatMul"]
    assert len({node.inputs[1] for node in products}) == 1


def test_a_body_that_stops_at_once_runs_once():
    model, feed = loop(condition="false")
    assert realized(model, UnrollLoops(), feed).count("MatMul") == 1


def test_no_iteration():
    model, feed = loop(trips=0, collects=False)
    assert realized(model, UnrollLoops(), feed) == ["Identity"]


def test_a_condition_on_the_data_is_refused():
    model, _ = loop(opset=13, condition="data")
    with pytest.raises(GraphError, match="the condition of Loop 'loop' depends on the data"):
        UnrollLoops()(model)
    assert operators(model) == ["Loop"]


def test_an_unknown_trip_count_is_refused():
    model, _ = loop()
    graph = model.graph
    graph.inputs.append(graph.initializers.pop("trips"))
    with pytest.raises(GraphError, match="trip count"):
        UnrollLoops()(model)


def test_what_no_iteration_collects_is_refused():
    model, _ = loop(trips=0)
    with pytest.raises(GraphError, match="no iteration"):
        UnrollLoops()(model)


def test_too_many_iterations_are_refused():
    model, _ = loop(trips=10**9)
    with pytest.raises(GraphError, match="nodes"):
        UnrollLoops()(model)


def test_a_loop_in_a_loop_and_in_a_branch():
    inner = helper.make_graph(
        [helper.make_node("Add", ["y", "x"], ["z"]), helper.make_node("Identity", ["c"], ["d"])],
        "inner",
        [info("j", TensorProto.INT64), info("c", TensorProto.BOOL), info("y", F, 2)],
        [info("d", TensorProto.BOOL), info("z", F, 2)],
    )
    outer = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Loop", ["i", "go", "x"], ["w"], "within", body=inner),
        ],
        "outer",
        [info("i", TensorProto.INT64), info("go", TensorProto.BOOL), info("x", F, 2)],
        [info("on", TensorProto.BOOL), info("w", F, 2)],
    )
    loops = [helper.make_node("Loop", ["n", "", "a"], ["r"], "around", body=outer)]
    taken = helper.make_graph(loops, "taken", [], [info("r", F, 2)])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["s"])], "other", [], [info("s", F, 2)])
    nodes = [helper.make_node("If", ["which"], ["out"], then_branch=taken, else_branch=other)]
    model = model_of(17, nodes, {"which": ("BOOL",), "a": (2,)}, ["out"], {"n": np.array(3)})
    found = realized(model, UnrollLoops(), {"which": np.array(True), "a": numbers(2)})
    assert found == ["If"]
    [branch] = [a.as_graph() for a in model.graph[0].attributes.values() if a.name == "then_branch"]
    assert [node.op_type for node in branch].count("Add") == 0 + 1 + 2


@pytest.mark.parametrize("opset", OPSETS)
def test_a_scan(opset):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Mul", ["t", "y"], ["p"]),
        ],
        "body",
        [info("s", F, 2), info("x", F, 2), info("y", F, 2)],
        [
            info("t", F, 2),
            info("p", F, 2),
        ],
    )
    nodes = [
        helper.make_node(
            "Scan",
            ["init", "xs", "ys"],
            ["last", "all"],
            "scan",
            body=body,
            num_scan_inputs=2,
            scan_input_axes=[0, 1],
            scan_input_directions=[1, 0],
            scan_output_axes=[1],
            scan_output_directions=[1],
        )
    ]
    model = model_of(opset, nodes, {"init": (2,), "xs": (3, 2), "ys": (2, 3)}, ["last", "all"])
    feed = {"init": numbers(2), "xs": numbers(3, 2), "ys": numbers(2, 3, seed=4)}
    found = realized(model, UnrollLoops(), feed)
    assert found == [*["Gather", "Gather", "Add", "Mul"] * 3, *["Unsqueeze"] * 3, "Concat"]


def test_a_scan_of_unknown_length_is_refused():
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "b", [info("x", F, 2)], [info("y", F, 2)]
    )
    nodes = [helper.make_node("Scan", ["xs"], ["ys"], "scan", body=body, num_scan_inputs=1)]
    model = model_of(17, nodes, {"xs": ("time", 2)}, ["ys"])
    with pytest.raises(GraphError, match="Scan 'scan' scans a dimension of unknown length"):
        UnrollLoops()(model)


def test_what_is_returned_without_being_computed():
    """The state of a body that returns an input, a weight, and a value from outside."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [info("i", TensorProto.INT64), info("go", TensorProto.BOOL), info("x", F, 2), info("y", F, 2)],
        [info("on", TensorProto.BOOL), info("y", F, 2), info("weight", F, 2), info("x", F, 2)],
        [numpy_helper.from_array(numbers(2), "weight")],
    )
    names = ["u", "v", "states"]
    nodes = [helper.make_node("Loop", ["n", "", "a", "b"], names, "loop", body=body)]
    model = model_of(17, nodes, {"a": (2,), "b": (2,)}, names, {"n": np.array(2)})
    assert isinstance(model, ir.Model)
    realized(model, UnrollLoops(), {"a": numbers(2), "b": numbers(2, seed=1)})

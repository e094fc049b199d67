"""The function library: calls are inlined, If and Case get blocks; recursion is refused, growth bounded."""

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph
from opsetta.exporter.files.reading.bounds import BOUNDS, TRUSTED, Bounds
from opsetta.registration.arguments import blocks

from .graphs import BOOL, FLOAT, INT32, Graph, Placeholder


def with_function(call: str = "PartitionedCall") -> Graph:
    """`twice(x, y)` returns x + y and the second half of x, for any element type."""
    graph = Graph()
    graph.placeholder("x", [4])
    body = graph.function(
        "twice", [("x", "T"), ("y", "T")], [("sum", "T", "sum:z:0"), ("part", "T", "parts:output:1")], ["T"]
    )
    body.constant("axis", 0)
    body.add("AddV2", "sum", ["x", "y:0"], T=Placeholder("T"))
    body.add("Split", "parts", ["axis:output:0", "x"], T=Placeholder("T"), num_split=2)
    if call == "twice":
        graph.message.node.add(name="call", op="twice", input=["x", "x"]).attr["T"].type = 1
    else:
        node = graph.message.node.add(name="call", op=call, input=["x", "x"])
        node.attr["f"].func.name = "twice"
        node.attr["f"].func.attr["T"].type = 1
        for name, count in (("Tin", 2), ("Tout", 2)):
            node.attr[name].list.type.extend([1] * count)
    graph.call("Neg", "out", ["call:1"])
    return graph


@pytest.mark.parametrize("call", ["PartitionedCall", "StatefulPartitionedCall", "twice"])
def test_calls_are_written_out(call):
    capture = capture_graph(with_function(call).message, outputs=["call", "out"])
    assert [node.name for node in capture.source.graph] == ["call/sum", "call/parts", "out"]
    assert list(capture.source.graph.initializers) == ["call/axis"]
    assert capture.output_names == ["call", "out"]


def test_calls_of_one_function_share_its_constants():
    graph = Graph()
    x = graph.placeholder("x", [2])
    body = graph.function("scaled", [("x", FLOAT)], [("y", FLOAT, "y:z:0")])
    body.constant("factor", np.ones(2, np.float32))
    body.call("Mul", "y", ["x", "factor:output:0"])
    for index in range(3):
        graph.add("PartitionedCall", f"call_{index}", [x], Tin=[FLOAT], Tout=[FLOAT], f="scaled")
    graph.add("AddN", "sum", [f"call_{index}" for index in range(3)], N=3, T=FLOAT)
    found = capture_graph(graph.message).source.graph
    assert list(found.initializers) == ["call_0/factor"]
    assert found.num_nodes() == 4


def test_a_function_that_calls_itself_is_refused():
    graph = Graph()
    x = graph.placeholder("x", [2])
    for name, other in (("f", "g"), ("g", "f")):
        body = graph.function(name, [("x", FLOAT)], [("y", FLOAT, "call:output:0")])
        body.add("PartitionedCall", "call", ["x"], Tin=[FLOAT], Tout=[FLOAT], f=other)
    graph.add("PartitionedCall", "call", [x], Tin=[FLOAT], Tout=[FLOAT], f="f")
    with pytest.raises(opsetta.CaptureError, match="function 'f' calls itself at node 'call'"):
        capture_graph(graph.message)


def bomb(depth: int, fan: int) -> Graph:
    """Functions that each call the next one several times."""
    graph = Graph()
    x = graph.placeholder("x", [2])
    for level in range(depth):
        body = graph.function(
            f"f{level}",
            [("x", FLOAT)],
            [("y", FLOAT, f"n{fan - 1}:" + ("y:0" if level == depth - 1 else "output:0"))],
        )
        name = "x"
        for index in range(fan):
            if level == depth - 1:
                body.call("Relu", f"n{index}", [name])
                name = f"n{index}:activations:0"
            else:
                body.add("PartitionedCall", f"n{index}", [name], Tin=[FLOAT], Tout=[FLOAT], f=f"f{level + 1}")
                name = f"n{index}:output:0"
    last = graph.message.library.function[-1]
    last.ret["y"] = f"n{fan - 1}:activations:0"
    graph.add("PartitionedCall", "call", [x], Tin=[FLOAT], Tout=[FLOAT], f="f0")
    return graph


def test_functions_that_grow_without_bound_are_refused():
    with pytest.raises(opsetta.ModelFileError, match="the model has too many nodes"):
        capture_graph(bomb(12, 10).message)
    with pytest.raises(opsetta.CaptureError, match="nested more than 24 deep"):
        capture_graph(bomb(40, 1).message, bounds=TRUSTED)
    assert capture_graph(bomb(3, 10).message, bounds=BOUNDS).source.graph.num_nodes() == 1000
    with pytest.raises(opsetta.ModelFileError, match="the model has too many nodes"):
        capture_graph(bomb(3, 10).message, bounds=Bounds(graph_nodes=900))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.message.node[1].input.pop(), "passes 1 values to function 'twice', which takes 2"),
        (
            lambda g: g.message.library.ClearField("function"),
            "calls function 'twice', which the library does not",
        ),
        (lambda g: g.message.library.function[0].ret.pop("sum"), "does not define its result 'sum'"),
        (
            lambda g: g.message.library.function.add().CopyFrom(g.message.library.function[0]),
            "two functions have",
        ),
        (
            lambda g: g.message.node[1].attr["f"].func.attr.pop("T"),
            "does not give attribute 'T' of function 'twice'",
        ),
        (
            lambda g: g.message.library.function[0].node_def.add(name="x", op="NoOp"),
            "two nodes of function 'twice'",
        ),
        (
            lambda g: g.message.library.function[0].ret.update({"sum": "sum:zz:0"}),
            r"reads 'sum:zz:0', but node 'sum' \(AddV2\) has no 'zz'",
        ),
    ],
)
def test_malformed_calls_are_refused(change, message):
    graph = with_function()
    change(graph)
    with pytest.raises(opsetta.ModelFileError, match=message):
        capture_graph(graph.message, outputs=["call", "out"])


def branching(op: str) -> Graph:
    graph = Graph()
    x, chosen = graph.placeholder("x", [2]), graph.placeholder("chosen", [], INT32 if op == "Case" else BOOL)
    for name, other in (("same", "Identity"), ("negated", "Neg"), ("doubled", "AddV2")):
        body = graph.function(
            name,
            [("x", FLOAT)],
            [("y", FLOAT, f"y:{'output' if other == 'Identity' else 'y' if other == 'Neg' else 'z'}:0")],
        )
        body.call(other, "y", ["x"] * (2 if other == "AddV2" else 1))
    types = {"Tin": [FLOAT], "Tout": [FLOAT]}
    if op == "Case":
        graph.add(op, "out", [chosen, x], branches=["same", "negated", "doubled"], **types)
    else:
        graph.add(op, "out", [chosen, x], Tcond=BOOL, then_branch="doubled", else_branch="negated", **types)
    return graph


@pytest.mark.parametrize("op", ["If", "StatelessIf"])
@pytest.mark.parametrize("opset", [7, 13])
def test_if(op, opset):
    source = opsetta.SourceModel(capture_graph(branching(op).message, inputs=["x", "chosen"]))
    [node] = source.source.graph
    assert (node.op_type, len(blocks(node))) == ("If", 2)
    program, x = source.lower(opset), np.float32([1, -2])
    np.testing.assert_array_equal(program(x, True), 2 * x)
    np.testing.assert_array_equal(program(x, False), -x)


@pytest.mark.parametrize("opset", [7, 13])
def test_case_takes_the_last_branch_for_a_number_without_one(opset):
    source = opsetta.SourceModel(capture_graph(branching("Case").message, inputs=["x", "chosen"]))
    [node] = source.source.graph
    assert list(node.attributes)[1:] == ["branches_0", "branches_1", "branches_2"]
    program, x = source.lower(opset), np.float32([1, -2])
    for number, expected in ((0, x), (1, -x), (2, 2 * x), (3, 2 * x), (-1, 2 * x)):
        np.testing.assert_array_equal(program(x, np.int32(number)), expected)


def test_a_constant_condition_leaves_no_branch():
    graph = branching("If")
    graph.message.node[1].CopyFrom(Graph().message.node.add())
    graph.message.node[1].Clear()
    constant = Graph()
    constant.constant("chosen", np.array(False))
    graph.message.node[1].CopyFrom(constant.message.node[0])
    program = opsetta.SourceModel(capture_graph(graph.message)).lower(13)
    assert [node.op_type for node in program.model.graph] == ["Neg"]


def test_a_condition_may_be_a_number_or_a_tensor():
    for shape, truths in (([], {0: False, 3: True}), ([-1], {(): False, (0,): True})):
        graph = branching("If")
        del graph.message.node[1].attr["shape"].shape.dim[:]
        chosen = Graph()
        chosen.placeholder("chosen", shape, INT32)
        graph.message.node[1].CopyFrom(chosen.message.node[0])
        graph.message.node[2].attr["Tcond"].type = 3
        program = opsetta.SourceModel(capture_graph(graph.message, inputs=["x", "chosen"])).lower(13)
        x = np.float32([1, -2])
        for given, truth in truths.items():
            np.testing.assert_array_equal(program(x, np.array(given, np.int32)), 2 * x if truth else -x)

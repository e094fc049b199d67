"""TensorFlow 1 control flow: nodes that become loops and branches, and nodes that are refused by name."""

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph
from opsetta.registration.arguments import arguments

from .graphs import BOOL, FLOAT, INT32, Graph

X = np.float32([1, -2])


def program(graph: Graph, outputs: list[str], opset: int = 13) -> opsetta.Program:
    return opsetta.SourceModel(capture_graph(graph.message, outputs=outputs)).lower(opset)


def branch(graph: Graph, predicate: str, prefix: str = "") -> None:
    """`merge` is x + x where the predicate holds, else -x; references as variables had them."""
    graph.add("RefSwitch", f"{prefix}switch", ["x", predicate], T=FLOAT)
    graph.call("AddV2", f"{prefix}then", [f"{prefix}switch:1", f"{prefix}switch:1"])
    graph.call("Neg", f"{prefix}else", [f"{prefix}switch"])
    graph.add("RefMerge", f"{prefix}merge", [f"{prefix}else", f"{prefix}then"], N=2, T=FLOAT)


def with_predicate() -> Graph:
    graph = Graph()
    graph.placeholder("x", [2])
    graph.placeholder("p", [], BOOL)
    return graph


def test_a_merge_of_both_results_of_a_switch_is_an_if():
    graph = with_predicate()
    branch(graph, "p")
    source = capture_graph(graph.message, outputs=["merge"])
    [node] = source.source.graph
    assert node.op_type == "If"
    assert [value.name for value in (arguments(node)["cond"], *arguments(node)["input"])] == ["p", "x"]
    made = opsetta.SourceModel(source).lower(13)
    np.testing.assert_array_equal(made(x=X, p=True), X + X)
    np.testing.assert_array_equal(made(x=X, p=False), -X)


def test_merges_of_one_condition_are_one_if():
    graph = with_predicate()
    branch(graph, "p")
    graph.call("Tanh", "then_too", ["then"])
    graph.call("Merge", "second", ["then_too", "switch"], N=2)
    [node] = capture_graph(graph.message, outputs=["merge", "second"]).source.graph
    assert (node.op_type, len(node.outputs)) == ("If", 2)


def test_branches_in_sequence_and_across_each_other_are_in_order():
    """Each condition has two Merges, and one of each depends on one of the other."""
    graph = with_predicate()
    graph.placeholder("q", [], BOOL)
    branch(graph, "p", "p_")
    branch(graph, "q", "q_")
    for prefix, predicate, other in (("a", "p", "q_merge"), ("b", "q", "p_merge")):
        graph.call("Switch", f"{prefix}_switch", [other, predicate])
        graph.call("Neg", f"{prefix}_then", [f"{prefix}_switch:1"])
        graph.call("Merge", f"{prefix}_merge", [f"{prefix}_switch", f"{prefix}_then"], N=2)
    made = program(graph, ["a_merge", "b_merge"])
    for p in (False, True):
        for q in (False, True):
            first, second = (X + X if p else -X), (X + X if q else -X)
            results = made(x=X, p=p, q=q)
            np.testing.assert_array_equal(results[0], -second if p else second)
            np.testing.assert_array_equal(results[1], -first if q else first)


def test_constants_belong_to_a_branch_by_their_control_inputs():
    graph = with_predicate()
    graph.call("Switch", "switch", ["p", "p"], BOOL)
    for side, name in enumerate(("else", "then")):
        graph.call("Identity", f"pivot_{name}", [f"switch:{side}"], BOOL)
        graph.constant(name, [float(side)] * 2, controls=[f"^pivot_{name}"])
    graph.call("Merge", "merge", ["then", "else"], N=2)
    made = program(graph, ["merge", "merge:1"])
    for p in (False, True):
        value, index = made(p=p)
        np.testing.assert_array_equal(value, np.float32([p, p]))
        assert (index.dtype, index) == (np.int32, 0 if p else 1)


@pytest.mark.parametrize("taken", [False, True])
def test_a_constant_condition_leaves_one_branch(taken):
    graph = Graph()
    graph.placeholder("x", [2])
    graph.constant("c", np.array(not taken))
    graph.add("LogicalNot", "inverse", ["c"])
    branch(graph, "inverse")
    found = capture_graph(graph.message, outputs=["merge"]).source.graph
    assert [node.name for node in found] == (["then"] if taken else ["else"])


def test_a_switch_by_number_is_a_case():
    graph = Graph()
    graph.placeholder("x", [2])
    graph.placeholder("number", [], INT32)
    graph.call("_SwitchN", "switch", ["x", "number"], num_outs=3)
    for index, op in enumerate(("Neg", "Abs", "Square")):
        graph.call(op, f"branch_{index}", [f"switch:{index}"])
    graph.call("Merge", "merge", ["branch_2", "branch_0", "branch_1"], N=3)
    made = program(graph, ["merge"])
    for number, expected in ((0, -X), (1, abs(X)), (2, X * X), (7, X * X)):
        np.testing.assert_array_equal(made(x=X, number=np.int32(number)), expected)


def loop(graph: Graph, name: str = "loop", op: str = "", start: str = "x", inner: str = "") -> None:
    """A loop that doubles `start` three times and adds an invariant; `op` is a prefix of its operators."""
    graph.constant(f"{name}/zero", 0)
    frame = {"frame_name": name}
    for variable, initial, kind in (("i", f"{name}/zero", INT32), ("v", start, FLOAT)):
        graph.call(f"{op}Enter", f"{name}/enter_{variable}", [initial], kind, **frame)
        graph.call(
            f"{op}Merge",
            f"{name}/merge_{variable}",
            [f"{name}/enter_{variable}", f"{name}/next_{variable}"],
            kind,
            N=2,
        )
        graph.call(
            f"{op}Switch", f"{name}/switch_{variable}", [f"{name}/merge_{variable}", f"{name}/cond"], kind
        )
        graph.call(f"{op}Exit", f"{name}/exit_{variable}", [f"{name}/switch_{variable}"], kind)
    graph.call("Enter", f"{name}/enter_x", ["x"], is_constant=True, **frame)
    graph.constant(f"{name}/three", 3, controls=[f"^{name}/merge_i"])
    graph.constant(f"{name}/one", 1, controls=[f"^{name}/switch_i"])
    graph.call("Less", f"{name}/less", [f"{name}/merge_i", f"{name}/three"], INT32)
    graph.add("LoopCond", f"{name}/cond", [f"{name}/less"])
    graph.call("AddV2", f"{name}/i", [f"{name}/switch_i:1", f"{name}/one"], INT32)
    graph.call("AddV2", f"{name}/double", [f"{name}/switch_v:1", f"{name}/switch_v:1"])
    graph.call("AddV2", f"{name}/v", [inner or f"{name}/double", f"{name}/enter_x"])
    graph.call(f"{op}NextIteration", f"{name}/next_i", [f"{name}/i"], INT32)
    graph.call(f"{op}NextIteration", f"{name}/next_v", [f"{name}/v"])


@pytest.mark.parametrize("op", ["", "Ref"])
def test_a_frame_is_a_while(op):
    graph = Graph()
    graph.placeholder("x", [2])
    loop(graph, op=op)
    found = capture_graph(graph.message, outputs=["loop/exit_v"])
    [node] = found.source.graph
    assert node.op_type == "While"
    assert [value.name for value in arguments(node)["input"]] == ["loop/zero", "x", "x"]
    np.testing.assert_array_equal(opsetta.SourceModel(found).lower(13)(X), 15 * X)


def test_a_variable_that_nothing_returns_is_carried_where_the_condition_needs_it():
    graph = Graph()
    graph.placeholder("x", [2])
    loop(graph)
    made = program(graph, ["loop/exit_i", "loop/exit_v"])
    count, value = made(X)
    assert count == 3
    np.testing.assert_array_equal(value, 15 * X)


def test_a_loop_in_a_branch_of_a_loop():
    graph = with_predicate()
    graph.call("Enter", "p_in", ["p"], BOOL, is_constant=True, frame_name="outer")
    loop(graph, "outer", inner="choice")
    graph.call("Switch", "switch", ["outer/double", "p_in"])
    graph.call("Switch", "switch_x", ["outer/enter_x", "p_in"])
    graph.call("Enter", "inner/enter", ["switch:1"], frame_name="inner")
    graph.call("Merge", "inner/merge", ["inner/enter", "inner/next"], N=2)
    graph.constant("inner/limit", 100.0, controls=["^inner/merge"])
    graph.constant("inner/axis", [0], controls=["^inner/merge"])
    graph.add("Max", "inner/max", ["inner/merge", "inner/axis"], T=FLOAT, Tidx=INT32)
    graph.call("Less", "inner/less", ["inner/max", "inner/limit"])
    graph.add("LoopCond", "inner/cond", ["inner/less"])
    graph.call("Switch", "inner/switch", ["inner/merge", "inner/cond"])
    graph.call("AddV2", "inner/v", ["inner/switch:1", "inner/switch:1"])
    graph.call("NextIteration", "inner/next", ["inner/v"])
    graph.call("Exit", "inner/exit", ["inner/switch"])
    graph.call("Neg", "else", ["switch_x"])
    graph.call("Merge", "choice", ["else", "inner/exit"], N=2)
    made = program(graph, ["outer/exit_v"])

    def expected(p: bool) -> np.ndarray:
        value = X
        for _ in range(3):
            value = value + value
            while p and value.max() < 100:
                value = value + value
            value = (value if p else -X) + X
        return value

    for p in (False, True):
        np.testing.assert_array_equal(made(x=X, p=p), expected(p))


@pytest.mark.parametrize(
    ("change", "outputs", "message"),
    [
        (
            lambda g: g.call("Tanh", "out", ["switch:1"]),
            ["out"],
            "result 1 of node 'switch' .* in one branch only",
        ),
        (
            lambda g: g.call("Merge", "out", ["then", "x"], N=2),
            ["out"],
            "node 'out' .* does not merge the branches",
        ),
        (
            lambda g: g.call("Merge", "out", ["then", "then"], N=2),
            ["out"],
            "node 'out' .* does not merge the branches",
        ),
        (lambda g: g.call("Exit", "out", ["then"]), ["out"], r"node 'out' \(Exit\) is not in a loop"),
        (lambda g: g.call("NextIteration", "out", ["x"]), ["out"], "'out' .* is used outside of a loop"),
        (
            lambda g: g.call("Enter", "out", ["x"], frame_name="f"),
            ["out"],
            "'out' .* is used outside of a loop",
        ),
    ],
)
def test_what_is_no_branch_is_refused_by_name(change, outputs, message):
    graph = with_predicate()
    branch(graph, "p")
    change(graph)
    with pytest.raises(opsetta.CaptureError, match=message):
        capture_graph(graph.message, outputs=outputs)


def replaced(graph: Graph, name: str, *inputs: str) -> None:
    node = next(node for node in graph.message.node if node.name == name)
    del node.input[:]
    node.input.extend(inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda g: replaced(g, "loop/merge_v", "loop/next_v", "loop/next_v"),
            "reads a NextIteration, but is not in a loop",
        ),
        (
            lambda g: replaced(g, "loop/exit_v", "loop/double"),
            "'loop/exit_v' .* does not leave its loop by the Switch",
        ),
        (
            lambda g: replaced(g, "loop/double", "loop/switch_v", "loop/switch_v"),
            "result 0 of node 'loop/switch_v'",
        ),
    ],
)
def test_what_is_no_loop_is_refused_by_name(change, message):
    graph = Graph()
    graph.placeholder("x", [2])
    loop(graph)
    change(graph)
    with pytest.raises(opsetta.CaptureError, match=message):
        capture_graph(graph.message, outputs=["loop/exit_v"])


def test_a_loop_without_its_way_back_is_a_circle():
    graph = Graph()
    graph.placeholder("x", [2])
    loop(graph)
    replaced(graph, "loop/merge_v", "loop/enter_v", "loop/v")
    with pytest.raises(opsetta.ModelFileError, match="depend on each other in a circle"):
        capture_graph(graph.message, outputs=["loop/exit_v"])


def test_loops_and_branches_nested_without_end_are_refused():
    graph = with_predicate()
    name = "x"
    for index in range(60):
        graph.placeholder(f"p{index}", [], BOOL)
        graph.call("Switch", f"s{index}", [name, f"p{index}"])
        name = f"s{index}:1"
    graph.call("Neg", "out", [name])
    with pytest.raises(opsetta.CaptureError, match="nested more than 48 deep"):
        capture_graph(graph.message, outputs=["out"])

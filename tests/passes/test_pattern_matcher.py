"""Patterns of ONNX nodes: what they match, and which nodes a match may remove."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.pattern_matcher import Pattern, constant, near, op, value
from tests.call_counts import count_calls

X, Y = value("x"), value("y")


def last_node(text: str) -> ir.Node:
    """The node of the last line of a graph with the inputs x, y and c, a constant 0.5 and a constant 2."""
    header = (
        '<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>'
        "main (float[2] x, float[2] y, bool c) => (float[2] out)"
        "<float half = {0.5}, float two = {2}, float[2] pair = {2, 2}> {"
    )
    graph = ir.from_onnx_text(f"{header} {text} }}").graph
    return graph[-1]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (X + op("Exp", Y), "e = Exp(y) out = Add(e, x)", True),
        (X + op("Exp", Y), "e = Exp(y) out = Add(x, e)", True),
        (X - op("Exp", Y), "e = Exp(y) out = Sub(e, x)", False),
        (X - op("Exp", Y), "e = Exp(y) out = Sub(x, e)", True),
        (op("Exp", X), "out = custom.Exp(x)", False),
        (op("Exp", X), "out = Exp(x)", True),
        (X * X, "out = Mul(x, x)", True),
        (X * X, "out = Mul(x, y)", False),
        (X / op("Exp", X), "e = Exp(y) out = Div(x, e)", False),
        (X * 0.5, "out = Mul(half, x)", True),
        (X * 0.5, "out = Mul(two, x)", False),
        (X * 2, "out = Mul(pair, x)", False),
        (X * constant("c"), "out = Mul(x, two)", True),
        (X * constant("c"), "out = Mul(x, y)", False),
        (1 / X | 2 / X, "out = Div(two, x)", True),
        (X**2 | X * X, "out = Mul(x, x)", True),
        (op("Clip", X, 0.5, 2), "out = Clip(x, half)", False),
        (op("Clip", X, 0.5, 2), "out = Clip(x, half, two)", True),
        (op("Clip", X, Y, 2), 'out = Clip(x, "", two)', False),
        (op("Split", X, output=1), "unread, out = Split(x)", True),
        (op("Split", X, output=0), "unread, out = Split(x)", False),
    ],
)
def test_a_formula_holds_or_not(pattern: Pattern, text: str, expected: bool) -> None:
    graph = last_node(text).graph
    assert graph is not None
    assert any(True for _ in pattern.matches(graph.outputs[0])) is expected


def test_an_alternative_is_tried_where_another_fails_later() -> None:
    """Only if x is the second operand of the sum, the quotient has the same x."""
    pattern = (X + Y) / op("Exp", X)
    match = pattern.find(last_node("s = Add(x, y) e = Exp(y) out = Div(s, e)"))
    assert match is not None
    assert (match["x"].name, match["y"].name) == ("y", "x")


def test_names_tell_the_alternative_and_its_values() -> None:
    pattern = op("Tanh", X * constant("factor") | op("Exp", X).label("power"))
    match = pattern.find(last_node("p = Mul(half, x) out = Tanh(p)"))
    assert match is not None
    assert "power" not in match
    assert match.number("factor") == 0.5
    match = pattern.find(last_node("p = Exp(y) out = Tanh(p)"))
    assert match is not None
    assert match.node("power").op_type == "Exp"
    assert match["x"].name == "y"


@pytest.mark.parametrize(
    ("text", "is_closed"),
    [
        ("e = Exp(x) s = Add(e, y) out = Div(s, e)", True),
        ("e = Exp(x) s = Add(e, y) n = Neg(s) out = Div(s, e)", False),
        (
            "e = Exp(x) s = Add(e, y) n = If(c) <then_branch = t () => (float[2] a) { a = Neg(e) }, "
            "else_branch = f () => (float[2] b) { b = Neg(y) }> out = Div(s, e)",
            False,
        ),
    ],
)
def test_no_other_node_reads_a_match(text: str, is_closed: bool) -> None:
    exponential = op("Exp", X).label("e")
    pattern = (exponential + Y) / exponential
    node = last_node(text)
    assert (pattern.find(node) is not None) == is_closed
    assert pattern.find(node, is_closed=False) is not None
    shared = op("Exp", X, shared=True)
    assert ((op("Add", shared, Y, shared=True) / shared).find(node)) is not None


def test_no_graph_returns_an_intermediate_value() -> None:
    node = last_node("e = Exp(x) out = Neg(e)")
    assert op("Neg", op("Exp", X)).find(node) is not None
    assert node.graph is not None
    node.graph.outputs.append(node.inputs[0])
    assert op("Neg", op("Exp", X)).find(node) is None


def test_a_default_of_an_input_is_no_number() -> None:
    node = last_node("out = Mul(x, half)")
    assert (X * 0.5).find(node) is not None
    assert node.graph is not None
    node.graph.inputs.append(node.inputs[1])
    assert (X * 0.5).find(node) is None


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (np.float32, 2**0.5, True),
        (np.float32, 1.41421, False),
        (np.float64, 1.4142135, True),
        (np.float16, 2**0.5, True),
        (np.float16, 1.41, False),
    ],
)
def test_a_number_is_near_within_the_precision_of_its_type(
    dtype: type, number: float, expected: bool
) -> None:
    divisor = ir.Value(name="d", const_value=ir.Tensor(np.array(number, dtype)))
    divisor.dtype = ir.DataType.from_numpy(np.dtype(dtype))
    node = ir.node("Div", [ir.Value(name="x"), divisor])
    assert ((X / near(2**0.5)).find(node) is not None) is expected


def test_a_condition_sees_the_names_in_the_operands() -> None:
    pattern = op(
        "Add", X, constant("c"), where=lambda node, match: match.number("c") > 1 and node.name == "a"
    )
    node = last_node("out = Add(x, two)")
    assert pattern.find(node) is None
    node.name = "a"
    assert pattern.find(node) is not None


def test_the_calls_grow_with_the_nodes() -> None:
    pattern = (X * Y) * (value("z") * constant("missing")) | X * (Y * (X * Y)) * 0.5

    def calls_for(length: int) -> int:
        lines = ["t0 = Mul(x, x)", *(f"t{index + 1} = Mul(t{index}, t{index})" for index in range(length))]
        graph = last_node(" ".join([*lines, f"out = Neg(t{length})"])).graph
        assert graph is not None
        return count_calls(lambda: [pattern.find(node) and pytest.fail("it is there") for node in graph])

    assert calls_for(800) < 4.4 * calls_for(200)

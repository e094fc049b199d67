"""Elementwise and row-wise nodes between Reshapes compute in the shape around them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opsetta.passes.onnx_graph.products.lifted_rows import LiftRows
from opsetta.registration import Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers

X = numbers(2, 3, 4, 8)


def flat(case: Case, value: Value) -> Value:
    """The rows of the last axis as a matrix."""
    rows = case.g.op("Reshape", value, [-1, 8])
    rows.shape = Case(["rows", 8]).x.shape
    return rows


def gate(case: Case) -> Value:
    """Another tensor of as many rows, in another shape."""
    pairs = case.g.op("Reshape", case.x, [0, 0, 2, 16])
    return flat(case, case.g.op("Neg", pairs))


def normalize(case: Case, x: Value) -> Value:
    g = case.g
    total = g.op("ReduceMean", g.op("Mul", x, x), axes=[1], keepdims=1)
    return g.op("Div", x, g.op("Sqrt", g.op("Add", total, np.float32(0.1))))


def unflat(case: Case, value: Value) -> Value:
    sizes = case.g.op("Slice", case.g.op("Shape", case.x), starts=[0], ends=[2], axes=[0])
    result = case.g.op("Reshape", value, case.g.op("Concat", sizes, np.array([4, 8]), axis=0))
    result.shape = case.x.shape
    return result


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_a_gated_normalization_keeps_the_shape_of_its_heads(opset: int) -> None:
    case = Case(["batch", "length", 4, 8], opset)
    normalized = normalize(case, flat(case, case.g.op("Relu", case.x)))
    gated = case.g.op("Mul", normalized, case.g.op("Sigmoid", gate(case)))
    case.returns(case.g.op("Mul", unflat(case, gated), case.weight("scale", numbers(8))))
    assert case.checked(X, LiftRows(case.known), exact=False)
    case.remove_unused()
    assert case.ops().count("Reshape") == 2


def test_a_reshape_to_a_third_shape_reads_the_shape_of_the_heads() -> None:
    case = Case(["batch", "length", 4, 8])
    g = case.g
    normalized = g.op("Mul", normalize(case, flat(case, g.op("Relu", case.x))), g.op("Sigmoid", gate(case)))
    sizes = g.op("Slice", g.op("Shape", case.x), starts=[0], ends=[2], axes=[0])
    merged = g.op("Reshape", normalized, g.op("Concat", sizes, [32], axis=0), allowzero=1)
    merged.shape = Case(["batch", "length", 32]).x.shape
    case.returns(g.op("MatMul", merged, case.weight("w", numbers(32, 5))))
    assert case.checked(X, LiftRows(case.known), exact=False)
    case.remove_unused()
    assert case.ops().count("Reshape") == 3
    assert "Concat" not in case.ops()


@pytest.mark.parametrize("op", ["Softmax", "LayerNormalization", "RMSNormalization"])
def test_normalizations_of_the_last_axis(op: str) -> None:
    case = Case(["batch", "length", 4, 8], 23)
    scale = [] if op == "Softmax" else [case.weight("scale", numbers(8))]
    rows = case.g.op(op, flat(case, case.g.op("Relu", case.x)), *scale, axis=1)
    case.returns(unflat(case, case.g.op("Add", rows, np.float32(1))))
    assert case.checked(X, LiftRows(case.known), exact=False)
    assert "Reshape" not in case.ops()


def test_one_reshape_behind_a_product_replaces_those_of_its_factors() -> None:
    case = Case(["batch", "length", 4, 8])
    g = case.g
    first, second = (g.op("Reshape", g.op(op, case.x), [0, 0, 32]) for op in ("Relu", "Neg"))
    product = g.op("Mul", first, g.op("Sigmoid", second))
    case.returns(g.op("MatMul", product, case.weight("w", numbers(32, 5))))
    assert case.checked(X, LiftRows(case.known))
    assert case.ops().count("Reshape") == 1


def sum_of_columns(case: Case, first: Value, second: Value) -> Value:
    total = case.g.op("ReduceMean", second, axes=[2], keepdims=1)
    return case.g.op("Add", first, total)


STAYING: dict[str, Callable[[Case, Value, Value], list[Value]]] = {
    "another reader": lambda case, first, second: [case.g.op("Mul", first, second), first],
    "a sum of merged columns": lambda case, *factors: [sum_of_columns(case, *factors)],
    "a vector of merged columns": lambda case, first, second: [
        case.g.op("Mul", first, case.g.op("Add", second, case.weight("bias", numbers(32))))
    ],
    "one factor": lambda case, first, second: [
        case.g.op("Mul", first, np.float32(2)),
        case.g.op("Abs", second),
    ],
    "another operand": lambda case, first, second: [
        case.g.op("Mul", first, case.g.op("MatMul", second, case.weight("w", numbers(32, 32))))
    ],
}


@pytest.mark.parametrize("build", STAYING.values(), ids=STAYING)
def test_what_stays(build: Callable[[Case, Value, Value], list[Value]]) -> None:
    case = Case(["batch", "length", 4, 8], 13)
    first, second = (case.g.op("Reshape", case.g.op(op, case.x), [0, 0, 32]) for op in ("Relu", "Neg"))
    case.returns(*(case.g.op("Exp", value) for value in build(case, first, second)))
    assert not LiftRows(case.known)(case.model).modified


def test_a_returned_value_keeps_its_shape() -> None:
    case = Case(["batch", "length", 4, 8])
    first, second = (case.g.op("Reshape", case.g.op(op, case.x), [0, 0, 32]) for op in ("Relu", "Neg"))
    case.returns(case.g.op("Mul", first, second))
    assert not case.checked(X, LiftRows(case.known))


def test_each_node_of_a_long_chain_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(["batch", "length", 4, 8])
    value = case.x
    for _ in range(60):
        value = case.g.op("Mul", value, np.float32(1.01))
    case.returns(value)
    nodes: list[str | None] = []
    knows_last_axis = LiftRows._knows_last_axis
    monkeypatch.setattr(
        LiftRows,
        "_knows_last_axis",
        lambda self, node: [nodes.append(node.name), knows_last_axis(self, node)][1],
    )
    assert not case.checked(X, LiftRows(case.known), exact=False)
    # The case runs the pass twice.
    assert len(nodes) <= 2 * 60

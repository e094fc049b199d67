"""Columns of linear layers are stored in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opsetta.passes.onnx_graph.products.separate_columns import SeparateColumns
from opsetta.passes.onnx_graph.shapes.rejoined_parts import RejoinParts
from opsetta.registration import Value

from ..opsets import HIGHEST
from .graph_case import Case, numbers

X = numbers(2, 3, 5)


def groups(case: Case, sizes: list[int], bias: bool = False) -> list[Value]:
    """The parts of each of two groups of columns of a layer."""
    g, width = case.g, 2 * sum(sizes)
    y = g.op("MatMul", case.x, case.weight("w", numbers(5, width)))
    if bias:
        y = g.op("Add", y, case.weight("b", numbers(width, seed=1)))
    parts = g.op("Split", g.op("Reshape", y, [0, 0, 2, sum(sizes)]), split=sizes, axis=3, outputs=len(sizes))
    for part, size in zip(parts, sizes, strict=True):
        part.shape = Case(["batch", "length", 2, size]).x.shape
    return list(parts)


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
@pytest.mark.parametrize("bias", [False, True])
def test_parts_of_groups_become_parts_of_the_columns(opset: int, bias: bool) -> None:
    case = Case(["batch", "length", 5], opset)
    q, k, gate = groups(case, [2, 3, 4], bias)
    g = case.g
    joined = g.op("Concat", g.op("Reshape", q, [0, 0, 4]), g.op("Reshape", k, [0, 0, 6]), axis=2)
    case.returns(g.op("Neg", joined), g.op("Reshape", gate, [-1, 4]))
    assert case.checked(X, SeparateColumns(case.known), exact=False)
    layer = ["MatMul", "Add"] if bias else ["MatMul"]
    assert case.ops() == [*layer, "Split", "Concat", "Neg", "Reshape"]
    assert case.checked(X, RejoinParts(case.known))
    case.remove_unused()
    assert case.ops() == [*layer, "Split", "Neg", "Reshape"]


STAYING: dict[str, Callable[[Case], list[Value]]] = {
    "readers of the groups": lambda case: [case.g.op("Neg", part) for part in groups(case, [2, 3])],
    "sizes of groups that are copied": lambda case: [
        case.g.op("Reshape", part, [0, 0, 0, -1]) for part in groups(case, [2, 3])
    ],
    "a part that is returned": lambda case: [
        groups(case, [4, 4])[0],
    ],
    "another axis": lambda case: [
        case.g.op("Reshape", part, [0, 0, -1])
        for part in case.g.op(
            "Split",
            case.g.op("Reshape", case.g.op("MatMul", case.x, case.weight("w", numbers(5, 8))), [0, 0, 4, 2]),
            split=[3, 1],
            axis=2,
            outputs=2,
        )
    ],
}


@pytest.mark.parametrize("name", STAYING)
def test_other_splits_stay(name: str) -> None:
    case = Case(["batch", "length", 5])
    case.returns(*STAYING[name](case))
    assert not case.checked(X, SeparateColumns(case.known))


def test_a_weight_with_another_reader_stays() -> None:
    case = Case(["batch", "length", 5])
    weight = case.weight("w", np.float32(numbers(5, 8)))
    g = case.g
    grouped = g.op("Reshape", g.op("MatMul", case.x, weight), [0, 0, 2, 4])
    parts = g.op("Split", grouped, split=[3, 1], axis=3, outputs=2)
    case.returns(*(g.op("Reshape", part, [0, 0, -1]) for part in parts), g.op("Neg", weight))
    assert not case.checked(X, SeparateColumns(case.known))

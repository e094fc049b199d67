"""Comparisons that never hold become False."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opsetta.passes.onnx_graph.simplification.false_conditions import FindFalseConditions
from opsetta.registration import Value

from .graph_case import Case, numbers

LOWEST = float(np.finfo(np.float32).min)
X = numbers(2, 3)


def _masked(case: Case, bias: float, other: np.ndarray) -> Value:
    """The maximum of each row of a bias, as attention computes it."""
    seen = case.g.op("Less", case.x, 1.0)
    return case.g.op("ReduceMax", case.g.op("Where", seen, other, bias), axes=[1], keepdims=1)


FALSE: dict[str, Callable[[Case], Value]] = {
    "selection": lambda case: _masked(case, LOWEST, numbers(2, 3)),
    "selection with NaN": lambda case: _masked(case, LOWEST, np.full((2, 3), np.nan, np.float32)),
    "never negative": lambda case: case.g.op("Relu", case.x),
    "joined": lambda case: case.g.op(
        "ReduceMin", case.g.op("Concat", case.g.op("Exp", case.x), numbers(2, 3), axis=0), axes=[0]
    ),
}
OPEN: dict[str, Callable[[Case], Value]] = {
    "minus infinity": lambda case: _masked(case, -np.inf, numbers(2, 3)),
    "minus infinity in a weight": lambda case: _masked(case, LOWEST, np.full((2, 3), -np.inf, np.float32)),
    "input": lambda case: case.x,
    "sum": lambda case: case.g.op("Add", _masked(case, LOWEST, numbers(2, 3)), case.x),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_never_below_a_number(name: str) -> None:
    case = Case([2, 3])
    below = case.g.op("Less", FALSE[name](case), LOWEST)
    case.returns(case.g.op("Where", below, 0.0, case.x))
    pass_ = FindFalseConditions(case.known)
    assert case.checked(X, pass_)
    assert case.model.graph[-1].inputs[0].producer() is None


@pytest.mark.parametrize("name", OPEN)
def test_what_may_be_below_a_number(name: str) -> None:
    case = Case([2, 3])
    below = case.g.op("Less", OPEN[name](case), LOWEST)
    case.returns(case.g.op("Where", below, 0.0, case.x))
    assert not case.checked(X, FindFalseConditions(case.known))


def test_a_maximum_of_an_unknown_number_of_elements() -> None:
    case = Case([2, "n"])
    case.returns(case.g.op("Less", case.g.op("ReduceMax", case.g.op("Relu", case.x), axes=[1]), LOWEST))
    assert not FindFalseConditions(case.known)(case.model).modified

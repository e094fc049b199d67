"""Equations of Einsum are checked without trying every way to read them."""

import pytest

from opsetta.exporter.lowering.inference_risks import _EQUATION
from opsetta.registration.validity.equations import equation_problem


@pytest.mark.parametrize(
    "equation",
    ["ab," * 60 + "ab!", "a...b," * 60 + "!", "a" * 200_000 + "!", "a...b" * 50_000, "ab," * 60 + "ab->a!"],
)
@pytest.mark.usefixtures("two_minutes_at_most")
def test_a_long_equation_that_is_none_is_refused(equation):
    assert "is not an equation" in equation_problem(equation, [2] * (equation.count(",") + 1))
    assert _EQUATION.fullmatch(equation) is None


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "...ij,...jk->...ik", "a...b", "...", "i->", "", "i...,j->...ij"]
)
def test_equations_are_equations(equation):
    assert _EQUATION.fullmatch(equation)


def test_messages_are_short():
    for equation in ("a" * 10_000, "a" * 10_000 + "!", "a->" + "b" * 10_000):
        problem = equation_problem(equation, [1])
        assert problem is None or len(problem) < 600

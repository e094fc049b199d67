"""Functions of integers give what sympy's own evaluation gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from opsetta.exporter.capture.size_limits.integer_functions import integer_function
from opsetta.exporter.torch_boundary.symbolic_sizes import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

N = sympy.Symbol("n", integer=True, nonnegative=True)
M = sympy.Symbol("m", integer=True, nonnegative=True)
ARITHMETIC = (sympy.Add, sympy.Mul, FloorDiv, CleanDiv, Mod, PythonMod, Max, Min, sympy.Max, sympy.Min)
RELATIONS = (sympy.Eq, sympy.Ne, sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)
ERRORS = (TypeError, ZeroDivisionError, ValueError, AssertionError)


def _made(parts: tuple[Callable[..., Any], Any, Any]) -> Any:
    operator, left, right = parts
    try:
        return operator(left, right)
    except ERRORS:
        return N


def _operations(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    powers = st.tuples(st.just(sympy.Pow), parts, st.integers(0, 3).map(sympy.Integer))
    return (st.tuples(st.sampled_from(ARITHMETIC), parts, parts) | powers).map(_made)


LEAVES = st.sampled_from([N, M]) | st.integers(-9, 9).map(sympy.Integer)
EXPRESSIONS = st.recursive(LEAVES, _operations, max_leaves=8)
CONDITIONS = st.tuples(st.sampled_from(RELATIONS), EXPRESSIONS, EXPRESSIONS).map(_made)


def _value(evaluate: Callable[[], Any]) -> Any:
    """An integer or a truth value; None where there is none, or it is not finite."""
    try:
        found = evaluate()
        return bool(found) if found in (True, False, sympy.true, sympy.false) else int(found)
    except ERRORS:
        return None


@given(EXPRESSIONS | CONDITIONS, st.integers(0, 40), st.integers(0, 40))
def test_the_function_of_an_expression_gives_what_sympy_gives(expression: Any, n: int, m: int) -> None:
    wanted = _value(lambda: expression.xreplace({N: sympy.Integer(n), M: sympy.Integer(m)}))
    found = _value(lambda: integer_function(expression)({N: n, M: m}))
    assert wanted is None or found == wanted


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (FloorDiv(N, M), ZeroDivisionError),
        (PythonMod(N, M), ZeroDivisionError),
        (Mod(N - 9, M + 4), ValueError),
    ],
)
def test_what_has_no_value_raises(expression: Any, error: type[Exception]) -> None:
    function = integer_function(expression)
    with pytest.raises(error):
        function({N: 1, M: 0})


def test_connected_conditions() -> None:
    condition = sympy.And(sympy.Gt(N, 2), sympy.Not(sympy.Eq(Mod(N, 3), M), evaluate=False))
    function = integer_function(condition)
    assert [n for n in range(9) if function({N: n, M: 1})] == [3, 5, 6, 8]


def test_a_power_with_a_computed_exponent_is_evaluated_by_sympy() -> None:
    assert integer_function(2**N)({N: 5}) == 32

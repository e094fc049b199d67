"""Sympy's expressions of sizes as Python: text and function have the values that Python's arithmetic has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from opsetta import CaptureError
from opsetta.exporter.capture.sizes.conditions.guards import Guard
from opsetta.exporter.capture.sizes.conditions.python_expressions import (
    compile_expression,
    expression_text,
    python_expression,
)
from opsetta.exporter.captured_graph.dimensions import evaluate
from opsetta.exporter.torch_boundary.symbolic_sizes import FloatProduct, FloatSum, functions

N = sympy.Symbol("n", integer=True, nonnegative=True)
M = sympy.Symbol("m", integer=True, nonnegative=True)
NAMES = {N: "n", M: "m"}
INTEGERS = (
    sympy.Add,
    sympy.Mul,
    functions.FloorDiv,
    functions.CleanDiv,
    functions.PythonMod,
    functions.Max,
    functions.Min,
    sympy.Max,
    sympy.Min,
)
FLOATS = (FloatSum, FloatProduct, functions.FloatTrueDiv)
ROUNDINGS = (functions.TruncToInt, functions.CeilToInt, functions.FloorToInt, functions.RoundToInt)
RELATIONS = (sympy.Eq, sympy.Ne, sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)
ERRORS = (TypeError, ArithmeticError, ValueError, AssertionError, AttributeError)


def _applied(parts: tuple[Any, ...]) -> Any:
    operator, *operands = parts
    try:
        return operator(*operands)
    except ERRORS:
        return operands[0]


def _numbers(depth: int) -> tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """Integers and floats."""
    integers = st.sampled_from([N, M]) | st.integers(-9, 9).map(sympy.Integer)
    constants = st.sampled_from([0.1, 0.3, 0.7, 1.5, 2.0, -0.25, 1e17]).map(sympy.Float)
    floats = integers.map(functions.ToFloat) | constants
    for _ in range(depth):
        operations = st.tuples(st.sampled_from(INTEGERS), integers, integers).map(_applied)
        rounded = st.tuples(st.sampled_from(ROUNDINGS), floats).map(_applied)
        divided = st.tuples(st.just(functions.IntTrueDiv), integers, integers).map(_applied)
        computed = st.tuples(st.sampled_from(FLOATS), floats, floats).map(_applied)
        integers = integers | operations | rounded
        floats = floats | computed | divided
    return integers, floats


WHOLE, FRACTIONS = _numbers(3)
CONDITIONS = st.tuples(st.sampled_from(RELATIONS), WHOLE | FRACTIONS, WHOLE | FRACTIONS).map(_applied)


def _value(function: Callable[[], Any]) -> Any:
    try:
        found = function()
        return bool(found) if found in (True, False, sympy.true, sympy.false) else float(found)
    except ERRORS:
        return None


@given(WHOLE | FRACTIONS | CONDITIONS, st.integers(0, 40), st.integers(0, 40))
def test_the_function_and_the_text_have_the_value_that_torch_gives(expression: Any, n: int, m: int) -> None:
    sizes = {"n": n, "m": m}
    wanted = _value(lambda: expression.xreplace({N: sympy.Integer(n), M: sympy.Integer(m)}))
    function = compile_expression(python_expression(expression, NAMES))
    value = _value(lambda: function(sizes))
    assert wanted is None or value is None or value == wanted
    assert _value(lambda: evaluate(expression_text(expression, NAMES), sizes)) == value


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (sympy.Gt(functions.IntTrueDiv(N, M), 1.5), "n / m > 1.5"),
        (sympy.Lt(FloatProduct(functions.ToFloat(N), sympy.Float(0.1)), 2.5), "n * 0.1 < 2.5"),
        (functions.TruncToInt(functions.FloatPow(functions.ToFloat(N), sympy.Float(0.5))), "int(n ** 0.5)"),
        (FloatSum(functions.ToFloat(N), functions.ToFloat(M)), "n + float(m)"),
        (functions.Max(N, M - 3), "max(n, m - 3)"),
        (sympy.And(sympy.Gt(N, 2), sympy.Ne(M, 3)), "n > 2 and m != 3"),
        (sympy.Pow(N - 2, 2), "(n - 2) ** 2"),
        (functions.Where(sympy.Gt(N, M), N, M), "n if n > m else m"),
        (4 - N, "4 - n"),
    ],
)
def test_the_text_is_what_a_user_writes(expression: Any, text: str) -> None:
    assert expression_text(expression, NAMES) == text


def test_sums_and_products_of_floats_are_not_reordered() -> None:
    n = functions.ToFloat(N)
    tenth = FloatProduct(FloatProduct(n, sympy.Float(0.1)), sympy.Float(0.1))
    total = FloatSum(FloatSum(n, sympy.Float(0.1)), sympy.Float(0.2))
    for size in range(200):
        assert evaluate(expression_text(tenth, NAMES), {"n": size}) == size * 0.1 * 0.1
        assert evaluate(expression_text(total, NAMES), {"n": size}) == size + 0.1 + 0.2
        assert float(tenth.xreplace({N: sympy.Integer(size)})) == size * 0.1 * 0.1


def test_what_python_cannot_say_is_refused() -> None:
    unknown = functions.IsNonOverlappingAndDenseIndicator(N, M, M, 1)
    with pytest.raises(CaptureError, match="no form in Python"):
        expression_text(sympy.Eq(unknown, 1), NAMES)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (sympy.Eq(2 * functions.CeilToInt(functions.IntTrueDiv(N, 2)), N), "n % 2 == 0"),
        (sympy.Ne(2 * functions.FloorToInt(functions.IntTrueDiv(N, 2)), N), "n % 2 == 1"),
        (sympy.Eq(8 * functions.CeilToInt(functions.IntTrueDiv(N + 3, 8)), N + 3), "n % 8 == 5"),
        (sympy.Eq(functions.CeilToInt(functions.IntTrueDiv(N, 4)), 3), "math.ceil(n / 4) == 3"),
        (sympy.Eq(4 * functions.RoundToInt(functions.IntTrueDiv(N, 4)), N), "n % 4 == 0"),
    ],
)
def test_a_rounded_quotient_is_said_as_a_remainder_where_it_is_one(condition: Any, text: str) -> None:
    guard = Guard(condition, {N: "n"}, "")
    assert guard.text == text
    for size in range(200):
        assert guard.holds({"n": size}) is evaluate(text, {"n": size})

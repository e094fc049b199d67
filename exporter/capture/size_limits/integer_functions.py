"""Functions of integers from sympy's expressions.

Evaluating an expression in sympy takes about a hundred times as long as calling such a function.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from ...torch_boundary.symbolic_sizes import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

IntegerFunction = Callable[[Mapping[Any, int]], Any]
"""Returns an integer or a truth value for a value of each symbol."""


def integer_function(expression: Any) -> IntegerFunction:
    """The function that an expression of integers, or a condition on them, describes.

    Raises, when it is called: ZeroDivisionError, ValueError for a remainder of a negative number, and what
    sympy raises where a part of the expression is not listed here.
    """
    if expression.is_Symbol:
        return operator.itemgetter(expression)
    if expression.is_Integer:
        number = int(expression)
        return lambda sizes: number
    function = _FUNCTIONS.get(expression.func)
    is_power = expression.func is sympy.Pow
    if function is None or (is_power and not (expression.exp.is_Integer and expression.exp >= 0)):
        return lambda sizes: expression.xreplace({each: sympy.Integer(n) for each, n in sizes.items()})
    parts = [integer_function(part) for part in expression.args]
    return lambda sizes: function([part(sizes) for part in parts])


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: function(*values)


def _remainder(values: list[int]) -> int:
    dividend, divisor = values
    remainder = dividend % divisor
    if (dividend < 0 or divisor < 0) and divisor != 1 and dividend not in (0, divisor, -divisor):
        raise ValueError(f"torch takes no remainder of {dividend} by {divisor}")
    return remainder


_FUNCTIONS: dict[Any, Callable[[list[Any]], Any]] = {
    sympy.Add: sum,
    sympy.Mul: math.prod,
    sympy.Pow: _of_two(operator.pow),
    FloorDiv: _of_two(operator.floordiv),
    CleanDiv: _of_two(operator.floordiv),
    Mod: _remainder,
    PythonMod: _of_two(operator.mod),
    sympy.Max: max,
    Max: max,
    sympy.Min: min,
    Min: min,
    sympy.Eq: _of_two(operator.eq),
    sympy.Ne: _of_two(operator.ne),
    sympy.Le: _of_two(operator.le),
    sympy.Lt: _of_two(operator.lt),
    sympy.Ge: _of_two(operator.ge),
    sympy.Gt: _of_two(operator.gt),
    sympy.And: all,
    sympy.Or: any,
    sympy.Not: lambda values: not values[0],
}

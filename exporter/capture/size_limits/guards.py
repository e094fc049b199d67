"""Conditions on sizes that torch has recorded."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from ...torch_boundary.symbolic_sizes import CleanDiv, FloorDiv, Mod, PythonMod
from .integer_functions import IntegerFunction, integer_function

Point = Mapping[str, int]
"""A size for each dimension, by name."""

_NEAR = 8
"""The distance from the example's size up to which every size is tried."""
_PARTS = 16
"""How many sizes of a period are tried."""
_LONGEST_PERIOD = 1 << 12
_INEQUALITIES = (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)


@dataclasses.dataclass(frozen=True)
class Guard:
    """A condition that torch has recorded.

    Attributes:
        expression: sympy's condition.
        dimensions: the names of its symbols' dimensions.
        line: where the model asked.
    """

    expression: Any
    dimensions: Mapping[Any, str]
    line: str

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names of its dimensions."""
        return frozenset(self.dimensions.values())

    @functools.cached_property
    def is_inequality(self) -> bool:
        """Whether it compares a size with a number."""
        sides = self.expression.args
        return (
            self.expression.func in _INEQUALITIES
            and any(side.is_Symbol for side in sides)
            and any(side.is_Integer for side in sides)
        )

    @functools.cached_property
    def _function(self) -> IntegerFunction:
        return integer_function(self.expression)

    @functools.cached_property
    def _equality(self) -> IntegerFunction:
        return integer_function(sympy.Eq(*self.expression.args, evaluate=False))

    def holds(self, point: Point) -> bool:
        """Whether it is true for the sizes of a point."""
        return self._is_true(self._function, point)

    def is_at_end(self, point: Point) -> bool:
        """Whether it is an inequality whose sides are equal at a point, so that both are the smaller one."""
        if self.expression.func not in _INEQUALITIES:
            return False
        return self._is_true(self._equality, point)

    def with_end(self) -> Guard:
        """The same inequality, also true where its sides are equal."""
        relations = {sympy.Lt: sympy.Le, sympy.Gt: sympy.Ge}
        relation = relations.get(self.expression.func, self.expression.func)
        return dataclasses.replace(self, expression=relation(*self.expression.args))

    def _is_true(self, condition: IntegerFunction, point: Point) -> bool:
        try:
            return bool(condition({symbol: point[name] for symbol, name in self.dimensions.items()}))
        except (TypeError, ZeroDivisionError, ValueError, AssertionError):
            # torch asserts that the dividends of its remainders are not negative.
            return False

    @property
    def text(self) -> str:
        """The condition as Python writes it, of the names of dimensions."""
        named = {symbol: sympy.Symbol(name, integer=True) for symbol, name in self.dimensions.items()}
        return str(_Condition().doprint(self.expression.xreplace(named)))

    @functools.cached_property
    def period(self) -> int:
        """A number of sizes after which its remainders and quotients repeat."""
        return min(_period(self.expression), _LONGEST_PERIOD)

    @functools.cached_property
    def distances(self) -> list[int]:
        """The distances from the example's size at which it is evaluated, over two periods."""
        parts = {self.period * i // _PARTS for i in range(1, 2 * _PARTS + 1)}
        return sorted({*range(1, _NEAR + 1), *parts} - {0})


class _Condition(StrPrinter):
    """Prints conditions as Python writes them."""

    def _print_Relational(self, expr: Any) -> str:
        relation = expr.rel_op
        if isinstance(expr.lhs, (Mod, PythonMod)) and expr.lhs.args[1].is_positive and expr.rhs == 0:
            relation = {"<=": "==", ">": "!="}.get(relation, relation)
        return f"{self._print(expr.lhs)} {relation} {self._print(expr.rhs)}"

    def _print_Mod(self, expr: Any) -> str:
        return f"{self._inner(expr.args[0])} % {self._inner(expr.args[1])}"

    _print_PythonMod = _print_Mod

    def _print_FloorDiv(self, expr: Any) -> str:
        return f"{self._inner(expr.args[0])} // {self._inner(expr.args[1])}"

    _print_CleanDiv = _print_FloorDiv

    def _inner(self, expr: Any) -> str:
        text = self._print(expr)
        return text if expr.is_Atom else f"({text})"

    def _print_And(self, expr: Any) -> str:
        return " and ".join(f"({self._print(part)})" for part in expr.args)

    def _print_Or(self, expr: Any) -> str:
        return " or ".join(f"({self._print(part)})" for part in expr.args)

    def _print_Not(self, expr: Any) -> str:
        return f"not ({self._print(expr.args[0])})"


def _period(expression: Any) -> int:
    """A number of sizes after which the remainders and quotients in an expression repeat."""
    period = math.lcm(1, *map(_period, expression.args))
    divides = isinstance(expression, (FloorDiv, CleanDiv, Mod, PythonMod, sympy.Mod))
    if divides and expression.args[1].is_Integer:
        period *= max(1, abs(int(expression.args[1])))
    return period

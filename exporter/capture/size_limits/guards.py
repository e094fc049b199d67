"""Conditions on sizes that torch has recorded."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy

from ...torch_boundary.symbolic_sizes import (
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Mod,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
)
from .python_expressions import NotPython, compiled, expression_text, python_expression

Point = Mapping[str, int]
"""A size for each dimension, by name."""

_NEAR = 8
"""The distance from the example's size up to which every size is tried."""
_PARTS = 16
"""How many sizes of a period are tried."""
_LONGEST_PERIOD = 1 << 12
_LONGEST_REMAINDER = 256
"""The longest period of a condition that is tried size by size."""
_ROUNDINGS = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
_OF_FLOATS = (IntTrueDiv, ToFloat)
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
    def has_floats(self) -> bool:
        """Whether it rounds, divides or compares floats."""
        return bool(self.expression.atoms(sympy.Float) or self.expression.has(*_ROUNDINGS, *_OF_FLOATS))

    @functools.cached_property
    def _function(self) -> Callable[[Point], Any]:
        return self._evaluation(self.expression)

    @functools.cached_property
    def _equality(self) -> Callable[[Point], Any]:
        return self._evaluation(sympy.Eq(*self.expression.args, evaluate=False))

    def _evaluation(self, expression: Any) -> Callable[[Point], Any]:
        """The function from sizes by name to the truth of a condition."""
        variables = {symbol: f"s{position}" for position, symbol in enumerate(self.dimensions)}
        try:
            function = compiled(python_expression(expression, variables))
        except NotPython:
            return lambda point: expression.xreplace(
                {symbol: sympy.Integer(point[name]) for symbol, name in self.dimensions.items()}
            )
        names = [(variable, self.dimensions[symbol]) for symbol, variable in variables.items()]
        return lambda point: function({variable: point[name] for variable, name in names})

    def holds(self, point: Point) -> bool:
        """Whether it is true for the sizes of a point; False if it has no value there."""
        return _is_true(self._function, point)

    def is_at_end(self, point: Point) -> bool:
        """Whether it is an inequality whose sides are equal at a point, so that both are the smaller one."""
        return self.expression.func in _INEQUALITIES and _is_true(self._equality, point)

    def with_end(self) -> Guard:
        """The same inequality, also true where its sides are equal."""
        relations = {sympy.Lt: sympy.Le, sympy.Gt: sympy.Ge}
        relation = relations.get(self.expression.func, self.expression.func)
        return dataclasses.replace(self, expression=relation(*self.expression.args))

    @functools.cached_property
    def text(self) -> str:
        """The condition as Python writes it, of the names of dimensions.

        Raises:
            NotPython: Python has no words for it.
        """
        remainder = self._as_remainder()
        return remainder or expression_text(self.expression, self.dimensions)

    def _as_remainder(self) -> str:
        """The condition as `n % 2 == 0`, if it holds exactly there; else empty.

        Such are roundings of quotients of integers: `math.ceil(n / 2) * 2 == n`. The difference of both sides
        is a multiple of the size plus a number that repeats. If it is 0 for two sizes that are a period
        apart, it repeats.
        """
        is_equation = isinstance(self.expression, (sympy.Eq, sympy.Ne)) and self.expression.has(*_ROUNDINGS)
        if len(self.dimensions) != 1 or not is_equation:
            return ""
        if not all(map(_is_quasilinear, self.expression.args)):
            return ""
        [name] = self.dimensions.values()
        period = _period(self.expression)
        if period > _LONGEST_REMAINDER:
            return ""
        starts = (0, 8 * period, 997 * period)
        allowed = {r for r in range(period) if self.holds({name: 8 * period + r})}
        for divisor in (number for number in range(2, period + 1) if period % number == 0):
            remainders = {size % divisor for size in allowed}
            if len(remainders) != 1 or len(allowed) * divisor != period:
                continue
            [remainder] = remainders
            tried = [start + step for start in starts for step in range(4 * period)]
            if all(self.holds({name: size}) == (size % divisor == remainder) for size in tried):
                return f"{name} % {divisor} == {remainder}"
        return ""

    @functools.cached_property
    def period(self) -> int:
        """A number of sizes after which its remainders and quotients repeat."""
        return min(_period(self.expression), _LONGEST_PERIOD)

    @functools.cached_property
    def distances(self) -> list[int]:
        """The distances from the example's size at which it is evaluated, over two periods."""
        parts = {self.period * i // _PARTS for i in range(1, 2 * _PARTS + 1)}
        return sorted({*range(1, _NEAR + 1), *parts} - {0})


def spread(base: Point, names: frozenset[str]) -> Iterator[dict[str, int]]:
    """Sizes other than the example's, small, near and large ones in turn: first of the dimensions with names.

    Args:
        base: the example's sizes.
        names: the dimensions of a condition.
    """
    named, others = sorted(names), sorted(base.keys() - names)
    steps = [
        *({name: base[name] + step for name in named} for step in (1, -1)),
        *(dict.fromkeys(named, size) for size in (1, 2)),
        *({name: base[name] * factor + 3 for name in named} for factor in (2, 9)),
    ]
    steps += [{name: size} for name in named for size in (1, base[name] + 1, base[name] - 1, 0, 2, 3)]
    steps += [{name: base[name] * factor + 1} for name in named for factor in (2, 3, 9, 40)]
    if len(named) > 1:
        pairs = itertools.permutations(named, 2)
        steps += [
            {first: size, second: other}
            for first, second in pairs
            for size, other in (
                (1, 2),
                (1, 3),
                (2, 3),
                (0, 1),
                (base[first] * 7, 1),
                (base[first] * 9 + 2, 3),
            )
        ]
    steps += [{name: base[name] + step} for name in named for step in (2, -2, 3, -3, 5, -5, 8, 13)]
    variants = [{name: size(base[name]) for name in others} for size in _OTHER_SIZES]
    unique = {}
    for variant, step in itertools.product(variants if others else [{}], steps):
        point = {**base, **variant, **step}
        if min(point.values()) >= 0:
            unique[tuple(point.items())] = point
    yield from unique.values()


_OTHER_SIZES: Sequence[Callable[[int], int]] = (
    lambda size: size,
    lambda size: 17 * size + 5,
    lambda size: 1,
)
"""The sizes of the dimensions that a condition does not mention, by that of the example."""


def _is_true(condition: Callable[[Point], Any], point: Point) -> bool:
    try:
        return bool(condition(point))
    except (TypeError, ArithmeticError, ValueError, AssertionError):
        return False


def _is_quasilinear(expression: Any) -> bool:
    """Whether an integer is a multiple of one symbol, plus a number that repeats with the symbol."""
    if expression.is_Symbol or expression.is_Integer:
        return True
    if expression.is_Add:
        return all(map(_is_quasilinear, expression.args))
    if expression.is_Mul:
        factors = [factor for factor in expression.args if not factor.is_Integer]
        return len(factors) == 1 and _is_quasilinear(factors[0])
    if isinstance(expression, _ROUNDINGS):
        [quotient] = expression.args
        return isinstance(quotient, IntTrueDiv) and _is_quotient(quotient)
    return isinstance(expression, (FloorDiv, CleanDiv, Mod, PythonMod)) and _is_quotient(expression)


def _is_quotient(expression: Any) -> bool:
    dividend, divisor = expression.args
    return bool(divisor.is_Integer and divisor > 0) and _is_quasilinear(dividend)


def _period(expression: Any) -> int:
    """A number of sizes after which the remainders and quotients in an expression repeat."""
    period = math.lcm(1, *map(_period, expression.args))
    divides = isinstance(expression, (FloorDiv, CleanDiv, IntTrueDiv, Mod, PythonMod, sympy.Mod))
    if divides and expression.args[1].is_Integer:
        period *= max(1, abs(int(expression.args[1])))
    return period

"""Conditions on sizes that torch has recorded."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy
from sympy.core.relational import Relational

from ....torch_boundary.symbolic_sizes import (
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
from .python_expressions import NotPython, compile_expression, expression_text, python_expression

Point = Mapping[str, int]
"""A size for each dimension, by name."""

_NEAREST_SIZES = 8
"""All sizes up to this distance from the example's are tried."""
_SIZES_OF_PERIOD = 16
"""The number of sizes of a period that are tried."""
_LONGEST_PERIOD = 1 << 12
_LONGEST_REMAINDER = 256
"""The longest period of a condition for which every size of a period is tried."""
_ROUNDINGS = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
_INEQUALITIES = (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)


@dataclasses.dataclass(frozen=True)
class Guard:
    """A condition that torch has recorded.

    Attributes:
        expression: sympy's condition.
        dimensions: the names of its symbols' dimensions.
        line: the line of the model that tests it.
        is_number: whether it fixes a number that the user's code computes from sizes: `h * w == 2400`.
        is_text: whether it fixes the text that the user's code makes of a size, or its length.
    """

    expression: sympy.Basic
    dimensions: Mapping[sympy.Symbol, str]
    line: str
    is_number: bool = False
    is_text: bool = False

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
        """Whether it has floats, which only the model's own code makes of sizes."""
        return bool(self.expression.atoms(sympy.Float) or self.expression.has(IntTrueDiv, ToFloat))

    @functools.cached_property
    def _function(self) -> Callable[[Point], object]:
        return self._evaluation(self.expression)

    @functools.cached_property
    def _equality(self) -> Callable[[Point], object]:
        # sympy would decide some equations by the assumptions about symbols, which points may break.
        return self._evaluation(sympy.Eq(*self.expression.args, evaluate=False))

    def _evaluation(self, expression: sympy.Basic) -> Callable[[Point], float]:
        """The function from sizes by name to the truth of a condition."""
        variables = {symbol: f"s{position}" for position, symbol in enumerate(self.dimensions)}
        try:
            function = compile_expression(python_expression(expression, variables))
        except NotPython:
            return lambda point: expression.xreplace(
                {symbol: sympy.Integer(point[name]) for symbol, name in self.dimensions.items()}
            )
        names = [(variable, self.dimensions[symbol]) for symbol, variable in variables.items()]
        return lambda point: function({variable: point[name] for variable, name in names})

    @functools.cached_property
    def signs(self) -> list[Callable[[Point], int | None]]:
        """For each comparison in it, the sign of left minus right side; None if it has no value."""
        return [_sign_of(difference) for difference in self.differences]

    @functools.cached_property
    def differences(self) -> list[Callable[[Point], float | None]]:
        """For each comparison in it, left minus right side; None if it has no value."""
        atoms = self.expression.atoms(Relational)
        return [_difference(self._evaluation(atom.lhs), self._evaluation(atom.rhs)) for atom in atoms]

    def holds(self, point: Point) -> bool:
        """Whether it is true for the sizes of a point; False if it has no value there."""
        return _is_true(self._function, point)

    def has_equal_sides(self, point: Point) -> bool:
        """Whether it is an inequality whose sides are equal at a point."""
        return self.expression.func in _INEQUALITIES and _is_true(self._equality, point)

    def including_equality(self) -> Guard:
        """The same inequality, also true where its sides are equal."""
        relations = {sympy.Lt: sympy.Le, sympy.Gt: sympy.Ge}
        relation = relations.get(self.expression.func, self.expression.func)
        return dataclasses.replace(self, expression=relation(*self.expression.args))

    @functools.cached_property
    def text(self) -> str:
        """The condition as a Python expression of the names of dimensions.

        Raises:
            NotPython: it has no form in Python.
        """
        remainder = self._as_remainder()
        return remainder or expression_text(self.expression, self.dimensions)

    def _as_remainder(self) -> str:
        """The condition in the form `n % 2 == 0`, if both are equivalent; else empty.

        This applies to rounded quotients of integers: `math.ceil(n / 2) * 2 == n`. The difference of both
        sides is a multiple of the size plus a periodic number. If it is 0 for two sizes that are a period
        apart, it is periodic itself.
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
        # Near 0 and far away: roundings of floats may differ for large sizes.
        starts = (0, 8 * period, 997 * period)
        # Away from 0, where a condition may hold for another reason.
        allowed = {r for r in range(period) if self.holds({name: 8 * period + r})}
        for divisor in (number for number in range(2, period + 1) if period % number == 0):
            remainders = {size % divisor for size in allowed}
            if len(remainders) != 1 or len(allowed) * divisor != period:
                continue
            [remainder] = remainders
            sizes = [start + step for start in starts for step in range(4 * period)]
            if all(self.holds({name: size}) == (size % divisor == remainder) for size in sizes):
                return f"{name} % {divisor} == {remainder}"
        return ""

    @functools.cached_property
    def period(self) -> int:
        """A number of sizes after which its remainders and quotients repeat."""
        return min(_period(self.expression), _LONGEST_PERIOD)

    @functools.cached_property
    def distances(self) -> list[int]:
        """The distances from the example's size at which it is evaluated, over two periods."""
        fractions = {self.period * i // _SIZES_OF_PERIOD for i in range(1, 2 * _SIZES_OF_PERIOD + 1)}
        return sorted({*range(1, _NEAREST_SIZES + 1), *fractions} - {0})


def spread(base: Point, names: frozenset[str]) -> Iterator[dict[str, int]]:
    """Points with other sizes than the example's: small, near and large ones, in a fixed random order.

    Args:
        base: the example's sizes.
        names: the dimensions of a condition, which vary most.
    """
    guard_names, other_names = sorted(names), sorted(base.keys() - names)
    sizes = {
        name: [*range(_SMALL_SIZES), *(base[name] * factor + 1 for factor in (2, 3, 9, 40))]
        for name in guard_names
    }
    for name in guard_names:
        sizes[name] += [
            base[name] + step for step in range(-_NEAREST_SIZES, _NEAREST_SIZES + 1) if base[name] + step >= 0
        ]
    choices = [
        {
            name: size,
            **{other_name: change(base[other_name]) for other_name in guard_names if other_name != name},
        }
        for name in guard_names
        for size in sizes[name]
        for change in _SIZE_CHANGES
    ]
    variants = [{name: change(base[name]) for name in other_names} for change in _SIZE_CHANGES]
    points = [
        {**base, **variant, **choice} for choice in choices for variant in (variants if other_names else [{}])
    ]
    # Points that change one size tell best which size matters.
    first = [point for point in points if sum(point[name] != base[name] for name in base) == 1]
    # A fixed seed: the same model must give the same restrictions.
    mixed = random.Random(0)
    mixed.shuffle(first)
    mixed.shuffle(points)
    near = [
        dict(base, **{name: base[name] + step})
        for step in (1, -1)
        for name in guard_names
        if base[name] + step >= 0
    ]
    unique = {tuple(point[name] for name in base): point for point in (*near, *first[:4], *points)}
    yield from unique.values()


_SMALL_SIZES = 34
"""All sizes of a dimension below this one are among the points of `spread`."""
_SIZE_CHANGES: Sequence[Callable[[int], int]] = (
    lambda size: size,
    lambda size: 17 * size + 5,
    lambda size: 1,
    lambda size: 2,
    lambda size: size + 1,
)
"""The sizes of the other dimensions in `spread`, as functions of the example's size."""


_NO_VALUE = (TypeError, ArithmeticError, ValueError, AssertionError)
"""The exceptions of an expression that has no value, such as a division by 0."""


def _is_true(condition: Callable[[Point], object], point: Point) -> bool:
    try:
        return bool(condition(point))
    except _NO_VALUE:
        return False


def _difference(
    left_side: Callable[[Point], float], right_side: Callable[[Point], float]
) -> Callable[[Point], float | None]:
    def difference(point: Point) -> float | None:
        try:
            return left_side(point) - right_side(point)
        except _NO_VALUE:
            return None

    return difference


def _sign_of(difference: Callable[[Point], float | None]) -> Callable[[Point], int | None]:
    def sign(point: Point) -> int | None:
        # The sign shows on which side of a boundary a point is, which truth alone does not.
        value = difference(point)
        try:
            return None if value is None else int(value > 0) - int(value < 0)
        except _NO_VALUE:
            return None

    return sign


def _is_quasilinear(expression: sympy.Basic) -> bool:
    """Whether an integer is a multiple of one symbol, plus a number that is periodic in the symbol."""
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


def _is_quotient(expression: sympy.Basic) -> bool:
    dividend, divisor = expression.args
    return bool(divisor.is_Integer and divisor > 0) and _is_quasilinear(dividend)


def _period(expression: sympy.Basic) -> int:
    """A number of sizes after which the remainders and quotients in an expression repeat."""
    period = math.lcm(1, *map(_period, expression.args))
    divides = isinstance(expression, (FloorDiv, CleanDiv, IntTrueDiv, Mod, PythonMod, sympy.Mod))
    if divides and expression.args[1].is_Integer:
        period *= max(1, abs(int(expression.args[1])))
    return period

"""Symbols for numbers that are rounded from long expressions of floats.

Detectors resize each image by such a number, `int(h * min(800 / min(h, w), 1333 / max(h, w)))`, and compute
all later sizes of it. sympy knows nothing about the number, but it would go through the whole expression at
each question about one of these sizes.
"""

from __future__ import annotations

from typing import Any

import sympy

from ....torch_boundary.symbolic_numbers import example_sizes
from ....torch_boundary.symbolic_sizes import ROUNDINGS, ValueRanges, new_symbol

_LONG = 12
"""The number of terms from which on an expression is long; that of `int(h * 0.7)` has 5."""


class RoundedNumbers:
    """The symbols of one recording.

    Args:
        environment: the `SizeEnvironment`.

    Attributes:
        definitions: the expression that each symbol stands for.
    """

    def __init__(self, environment: Any):
        self._environment = environment
        self._symbols: dict[sympy.Expr, sympy.Symbol] = {}
        self.definitions: dict[sympy.Symbol, sympy.Expr] = {}

    def shorten(self, expression: sympy.Expr, hint: object) -> sympy.Expr:
        """The symbol of a number that is rounded from a long expression; other expressions as they are.

        Args:
            hint: the value of the expression in the example. Numbers that are 0 or 1 there get no symbol,
                because torch and the recording treat these apart.
        """
        if not isinstance(expression, ROUNDINGS) or not isinstance(hint, int) or hint < 2:
            return expression
        if expression not in self._symbols:
            environment = self._environment
            is_of_inputs = expression.free_symbols <= example_sizes(environment).keys()
            if not is_of_inputs or sum(1 for _ in sympy.preorder_traversal(expression)) < _LONG:
                return expression
            # The name follows from the expression, so that another recording has the same one.
            bounds = _integer_bounds(environment.bound_sympy(expression))
            symbol = new_symbol(environment, f"rounded {expression}", hint, bounds)
            self._symbols[expression], self.definitions[symbol] = symbol, expression
        return self._symbols[expression]

    def is_circular(self, symbol: sympy.Symbol, expression: sympy.Expr) -> bool:
        """Whether an expression for the size of an input contains numbers that are computed of it."""
        is_of_input = symbol not in self.definitions and symbol in example_sizes(self._environment)
        return is_of_input and not expression.free_symbols.isdisjoint(self.definitions)


def _integer_bounds(bounds: ValueRanges[sympy.Expr]) -> ValueRanges[sympy.Expr]:
    """The bounds of an integer. torch 2.15 rounds 0.0 to itself: sympy takes this float for an integer."""
    lower, upper = (
        sympy.Integer(int(bound)) if isinstance(bound, sympy.Float) else bound
        for bound in (bounds.lower, bounds.upper)
    )
    return ValueRanges(lower, upper)

"""Bounds of polynomials that follow from what their atoms are, and from conditions that a capture tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .....registration.size_algebra.polynomials import Bounds, Polynomial
from ....torch_boundary.symbolic_sizes import FloorDiv
from .divisions import Atoms


def smallest_values(
    name: str,
    difference: Polynomial[int],
    is_true: bool,
    bounds: Callable[[Polynomial[int]], Bounds],
) -> Mapping[int, int]:
    """The smallest value of each atom that a comparison with 0 raises, if it has this answer.

    Args:
        name: "eq", "ne", "lt", "le", "gt" or "ge".
        difference: the first operand minus the second one.
        bounds: numbers between which a polynomial lies.
    """
    if name in ("eq", "ne"):
        # A number that is not its lower bound lies above it.
        if (name == "eq") is is_true or bounds(difference)[0] != 0:
            return {}
        positive = difference
    else:
        # n < m is not n >= m, and n <= m is m >= n.
        is_larger = (name in ("gt", "ge")) is is_true
        is_strict = (name in ("gt", "lt")) is is_true
        larger = difference if is_larger else -difference
        positive = larger if is_strict else larger + Polynomial.of_number(1)
    [monomial, *further_terms] = [key for key in positive.terms if key] or [()]
    constant = positive.terms.get((), 0)
    factor = positive.terms.get(monomial, 0)
    if further_terms or factor <= 0 or not monomial:
        return {}
    if len(monomial) == 1:
        # The smallest n for which factor * n + constant is at least 1.
        return {monomial[0]: -((constant - 1) // factor)}
    lows = [bounds(Polynomial.of_atom(atom))[0] for atom in monomial]
    is_product_of_positives = constant <= 0 and all(low is not None and low >= 0 for low in lows)
    return dict.fromkeys(monomial, 1) if is_product_of_positives else {}


def bounds_without_quotients(
    atoms: Atoms, polynomial: Polynomial[int], ranges: Callable[[int], Bounds]
) -> Bounds:
    """Bounds of a polynomial in which `d * (x // d)` is written as x minus a number from 0 to d - 1.

    So `7 * ((h + 6) // 7) - h` lies between 0 and 6, which no bounds of its atoms show.
    """
    forms: dict[int, Polynomial[int]] = {}
    largest_remainders: dict[int, int] = {}
    for monomial, factor in polynomial.terms.items():
        expression = atoms.atom_expression(monomial[0]) if len(monomial) == 1 else None
        if not isinstance(expression, FloorDiv) or not expression.args[1].is_Integer:
            continue
        divisor = int(expression.args[1])
        if divisor > 0 and factor % divisor == 0:
            remainder = -1 - len(largest_remainders)
            largest_remainders[remainder] = divisor - 1
            exact = atoms.polynomial(expression.args[0]) - Polynomial.of_atom(remainder)
            forms[monomial[0]] = exact
            polynomial = Polynomial({**polynomial.terms, monomial: factor // divisor})
    if not forms:
        return None, None
    return polynomial.substitute(forms).bounds(
        lambda atom: ranges(atom) if atom >= 0 else (0, largest_remainders[atom])
    )

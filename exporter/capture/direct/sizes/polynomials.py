"""Integer polynomials in sizes, with bounds of their values.

A polynomial is a sum of integer multiples of products of atoms. An atom is the number of a size, or of an
expression without a polynomial form (a quotient, a remainder, a minimum). The form is canonical: two
polynomials are equal for all values of their atoms exactly if their terms are equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping

Monomial = tuple[int, ...]
"""The atoms of a product in ascending order; an atom is repeated as often as its exponent says."""
Bounds = tuple[int | None, int | None]
"""The smallest and the largest value; None where there is none."""

_LARGEST_DEGREE = 10
_MOST_TERMS = 128
_UNBOUNDED: Bounds = (None, None)


class Polynomial:
    """An immutable, hashable polynomial.

    Attributes:
        terms: the coefficient of each product of atoms, without zeros.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]):
        self.terms: dict[Monomial, int] = {key: factor for key, factor in terms.items() if factor}
        self._hash = hash(frozenset(self.terms.items()))

    @classmethod
    def of_number(cls, number: int) -> Polynomial:
        """The polynomial without atoms."""
        return cls({(): number})

    @classmethod
    def of_atom(cls, atom: int) -> Polynomial:
        """The polynomial that is one atom."""
        return cls({(atom,): 1})

    def __eq__(self, operand: object) -> bool:
        return isinstance(operand, Polynomial) and self.terms == operand.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Polynomial({self.terms})"

    @property
    def number(self) -> int | None:
        """The value, if it does not depend on atoms."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def atoms(self) -> set[int]:
        """The atoms that occur."""
        return {atom for monomial in self.terms for atom in monomial}

    def __add__(self, operand: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in operand.terms.items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial(terms)

    def __sub__(self, operand: Polynomial) -> Polynomial:
        return self + -operand

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -factor for monomial, factor in self.terms.items()})

    def __mul__(self, operand: Polynomial) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for first_monomial, factor in self.terms.items():
            for second_monomial, operand_factor in operand.terms.items():
                monomial = (
                    tuple(sorted(first_monomial + second_monomial))
                    if first_monomial and second_monomial
                    else first_monomial or second_monomial
                )
                terms[monomial] = terms.get(monomial, 0) + factor * operand_factor
        return Polynomial(terms)

    def divide(self, divisor: Polynomial) -> Polynomial | None:
        """The quotient by a polynomial of one term, if it divides every term; else None."""
        if len(divisor.terms) != 1:
            return None
        [(monomial, factor)] = divisor.terms.items()
        terms = {}
        for dividend, dividend_factor in self.terms.items():
            quotient = _without(dividend, monomial)
            if quotient is None or dividend_factor % factor:
                return None
            terms[quotient] = dividend_factor // factor
        return Polynomial(terms)

    def substitute(self, values: Mapping[int, Polynomial]) -> Polynomial:
        """The polynomial with atoms replaced."""
        terms: dict[Monomial, int] = {}
        for monomial, factor in self.terms.items():
            unchanged = Polynomial({tuple(atom for atom in monomial if atom not in values): factor})
            product = _product(unchanged, (values[atom] for atom in monomial if atom in values))
            for key, product_factor in product.terms.items():
                terms[key] = terms.get(key, 0) + product_factor
        return Polynomial(terms)

    def value(self, values: Callable[[int], int]) -> int:
        """The value for given values of the atoms."""
        return sum(factor * math.prod(map(values, monomial)) for monomial, factor in self.terms.items())

    def bounds(self, ranges: Callable[[int], Bounds]) -> Bounds:
        """Numbers between which the value lies whatever values in their ranges the atoms take.

        Each atom is replaced by its distance from an end of its range, so that all terms are monotonous.
        """
        if self.number is not None:
            return self.number, self.number
        if max(map(len, self.terms)) > _LARGEST_DEGREE:
            return _UNBOUNDED
        distances: dict[int, Polynomial] = {}
        widths: dict[int, int | None] = {}
        for atom in self.atoms:
            low, high = ranges(atom)
            # With atoms that are at least 0, each term is monotonous, so its extremes are at the ends.
            if low is not None:
                distances[atom] = Polynomial({(atom,): 1, (): low})
            elif high is not None:
                distances[atom] = Polynomial({(atom,): -1, (): high})
            else:
                return _UNBOUNDED
            widths[atom] = None if low is None or high is None else max(0, high - low)
        # Replacing each atom by a sum of two terms multiplies a product of n atoms out to 2**n terms.
        if sum(2 ** len(monomial) for monomial in self.terms) > _MOST_TERMS:
            return _UNBOUNDED
        shifted = self.substitute(distances)
        return _extreme(shifted, widths, -1), _extreme(shifted, widths, 1)

    def has_no_root(self) -> bool:
        """Whether divisibility alone shows that the value is never 0, as for 2*a + 1."""
        common = math.gcd(*(factor for monomial, factor in self.terms.items() if monomial))
        return common > 1 and self.terms.get((), 0) % common != 0


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    remaining = list(monomial)
    for atom in divisor:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def _product(first: Polynomial, factors: Iterable[Polynomial]) -> Polynomial:
    return functools.reduce(Polynomial.__mul__, factors, first)


def _extreme(polynomial: Polynomial, widths: Mapping[int, int | None], sign: int) -> int | None:
    """The largest (sign 1) or smallest (-1) value for atoms from 0 to their widths; None for no bound.

    Terms are bounded one by one, so the result may lie beyond the true extreme.
    """
    total = polynomial.terms.get((), 0)
    for monomial, factor in polynomial.terms.items():
        if monomial and factor * sign > 0:
            for atom in monomial:
                width = widths[atom]
                if width is None:
                    return None
                factor *= width
            total += factor
    return total

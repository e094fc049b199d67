"""Integer polynomials in sizes, with bounds of their values.

A polynomial is a sum of integer multiples of products of atoms. An atom is the number or the name of a size,
or of an expression without a polynomial form (a quotient, a remainder, a minimum). The form is canonical: two
polynomials are equal for all values of their atoms exactly if their terms are equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

Atom = TypeVar("Atom", int, str)
Monomial = tuple[Atom, ...]
"""The atoms of a product in ascending order; an atom is repeated as often as its exponent says."""
Bounds = tuple[int | None, int | None]
"""The smallest and the largest value; None where there is none."""

_LARGEST_DEGREE = 10
_MOST_TERMS = 128
_UNBOUNDED: Bounds = (None, None)
_OPPOSITES = {"ne": "eq", "ge": "lt", "gt": "le"}


class Polynomial(Generic[Atom]):
    """An immutable, hashable polynomial.

    Attributes:
        terms: the coefficient of each product of atoms, without zeros.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial[Atom], int]):
        self.terms: dict[Monomial[Atom], int] = {key: factor for key, factor in terms.items() if factor}
        self._hash = hash(frozenset(self.terms.items()))

    @classmethod
    def of_number(cls, number: int) -> Polynomial[Atom]:
        """The polynomial without atoms."""
        return cls({(): number})

    @classmethod
    def of_atom(cls, atom: Atom) -> Polynomial[Atom]:
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
    def atoms(self) -> set[Atom]:
        """The atoms that occur."""
        return {atom for monomial in self.terms for atom in monomial}

    def __add__(self, operand: Polynomial[Atom]) -> Polynomial[Atom]:
        terms = dict(self.terms)
        for monomial, factor in operand.terms.items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial(terms)

    def __sub__(self, operand: Polynomial[Atom]) -> Polynomial[Atom]:
        return self + -operand

    def __neg__(self) -> Polynomial[Atom]:
        return Polynomial({monomial: -factor for monomial, factor in self.terms.items()})

    def __mul__(self, operand: Polynomial[Atom]) -> Polynomial[Atom]:
        terms: dict[Monomial[Atom], int] = {}
        for first_monomial, factor in self.terms.items():
            for second_monomial, operand_factor in operand.terms.items():
                monomial = (
                    tuple(sorted(first_monomial + second_monomial))
                    if first_monomial and second_monomial
                    else first_monomial or second_monomial
                )
                terms[monomial] = terms.get(monomial, 0) + factor * operand_factor
        return Polynomial(terms)

    @property
    def degree(self) -> int:
        """The number of atoms in the longest product."""
        return max(map(len, self.terms), default=0)

    def divide(self, divisor: Polynomial[Atom]) -> Polynomial[Atom] | None:
        """The quotient by a polynomial that divides this one for all values of the atoms; else None."""
        # The factors of a single term are single terms.
        if not divisor.terms or len(self.terms) == 1 < len(divisor.terms):
            return None
        # Products are ordered by degree, then as tuples. The order is kept when both sides are multiplied, so
        # the largest term of an exact product is the product of the largest terms.
        largest = max(divisor.terms, key=_order)
        factor = divisor.terms[largest]
        remaining = dict(self.terms)
        quotient: dict[Monomial[Atom], int] = {}
        while remaining:
            dividend = max(remaining, key=_order) if len(divisor.terms) > 1 else next(iter(remaining))
            monomial = _without(dividend, largest)
            if monomial is None or remaining[dividend] % factor:
                return None
            quotient[monomial] = count = remaining[dividend] // factor
            for term, term_factor in divisor.terms.items():
                key = tuple(sorted(monomial + term))
                remaining[key] = remaining.get(key, 0) - count * term_factor
                if not remaining[key]:
                    del remaining[key]
        return Polynomial(quotient)

    def divide_down(self, divisor: int) -> Polynomial[Atom] | None:
        """The quotient by a positive number, rounded down: (4*a + 7)//4 is a + 1; None for (2*a + 1)//4."""
        constant = self.terms.get((), 0)
        terms = {monomial: factor for monomial, factor in self.terms.items() if monomial}
        if any(factor % divisor for factor in terms.values()):
            return None
        quotient = {monomial: factor // divisor for monomial, factor in terms.items()}
        return Polynomial({**quotient, (): constant // divisor})

    def substitute(self, values: Mapping[Atom, Polynomial[Atom]]) -> Polynomial[Atom]:
        """The polynomial with atoms replaced."""
        terms: dict[Monomial[Atom], int] = {}
        for monomial, factor in self.terms.items():
            unchanged = Polynomial({tuple(atom for atom in monomial if atom not in values): factor})
            product = _product(unchanged, (values[atom] for atom in monomial if atom in values))
            for key, product_factor in product.terms.items():
                terms[key] = terms.get(key, 0) + product_factor
        return Polynomial(terms)

    def value(self, values: Callable[[Atom], int]) -> int:
        """Evaluate the polynomial for values of the atoms."""
        return sum(factor * math.prod(map(values, monomial)) for monomial, factor in self.terms.items())

    def bounds(self, ranges: Callable[[Atom], Bounds]) -> Bounds:
        """Numbers between which the value lies whatever values in their ranges the atoms take.

        Each atom is replaced by its distance from an end of its range, so that all terms are monotonous.
        """
        if self.number is not None:
            return self.number, self.number
        if self.degree > _LARGEST_DEGREE:
            return _UNBOUNDED
        distances: dict[Atom, Polynomial[Atom]] = {}
        widths: dict[Atom, int | None] = {}
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
        # Every sum of the other terms is a multiple of their common factor, so the constant must be one, too.
        common = math.gcd(*(factor for monomial, factor in self.terms.items() if monomial))
        return common > 1 and self.terms.get((), 0) % common != 0


def decide(
    relation: str,
    first: Polynomial[Atom],
    second: Polynomial[Atom],
    bounds: Callable[[Polynomial[Atom]], Bounds],
) -> bool | None:
    """Decide a comparison ("eq", "ne", "lt", "le", "gt", "ge"); None if it may differ between sizes.

    Args:
        bounds: numbers between which a polynomial lies.
    """
    answer = _compare_with_zero(_OPPOSITES.get(relation, relation), first - second, bounds)
    # Each relation is one of three, or the opposite of one.
    return answer if answer is None or relation not in _OPPOSITES else not answer


def _compare_with_zero(
    relation: str, difference: Polynomial[Atom], bounds: Callable[[Polynomial[Atom]], Bounds]
) -> bool | None:
    """Whether a number is equal to ("eq"), less than ("lt") or at most ("le") 0; None if that varies."""
    low, high = bounds(difference)
    if relation == "eq":
        if low == high == 0:
            return True
        never_equal = (
            (low is not None and low > 0) or (high is not None and high < 0) or difference.has_no_root()
        )
        return False if never_equal else None
    if high is not None and (high < 0 or (relation == "le" and high == 0)):
        return True
    if low is not None and (low > 0 or (relation == "lt" and low == 0)):
        return False
    return None


def _order(monomial: Monomial[Atom]) -> tuple[int, Monomial[Atom]]:
    return len(monomial), monomial


def _without(monomial: Monomial[Atom], divisor: Monomial[Atom]) -> Monomial[Atom] | None:
    remaining = list(monomial)
    for atom in divisor:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def _product(first: Polynomial[Atom], factors: Iterable[Polynomial[Atom]]) -> Polynomial[Atom]:
    return functools.reduce(Polynomial.__mul__, factors, first)


def _extreme(polynomial: Polynomial[Atom], widths: Mapping[Atom, int | None], sign: int) -> int | None:
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

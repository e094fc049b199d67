"""Quotients and remainders of sizes as polynomials.

sympy needs seconds to compare nested quotients, such as `(h + (7 - h % 7) % 7) // 7`. Most have a short form:
the padded size here is `7 * ((h + 6) // 7)`, whose quotient by 7 has no remainder.
"""

from __future__ import annotations

import math
from typing import Protocol

import sympy

from .....registration.size_algebra.polynomials import Bounds, Polynomial
from ....torch_boundary.symbolic_numbers import Mod, PythonMod
from ....torch_boundary.symbolic_sizes import FloorDiv, IntTrueDiv, floor_quotient

REMAINDERS = (Mod, PythonMod)


class Atoms(Protocol):
    """The atoms of polynomials, and the expressions that they stand for."""

    def polynomial(self, expression: sympy.Basic) -> Polynomial[int]:
        """The polynomial of an integer expression."""

    def expression_of(self, polynomial: Polynomial[int]) -> sympy.Basic:
        """The expression of a polynomial."""

    def atom_expression(self, atom: int) -> sympy.Basic:
        """The expression that an atom stands for."""

    def bounds(self, polynomial: Polynomial[int]) -> Bounds:
        """Numbers between which a polynomial lies."""


def shorten(atoms: Atoms, polynomial: Polynomial[int]) -> Polynomial[int]:
    """A sum with fewer terms: `h - h % 4` is `4 * (h // 4)`, and `h + h % 2` is `2 * ((h + 1) // 2)`."""
    for atom in polynomial.atoms:
        for form in _forms_of_remainder(atoms, atom):
            shorter = polynomial.substitute({atom: form})
            if len(shorter.terms) < len(polynomial.terms):
                return shorten(atoms, shorter)
    return polynomial


def short_quotient(atoms: Atoms, dividend: Polynomial[int], divisor: int) -> Polynomial[int] | None:
    """The quotient of a polynomial by a positive number, rounded down; None where it needs a new atom."""
    quotient = dividend.divide_down(divisor)
    if quotient is not None:
        return quotient
    # (h + 4 - h % 4) // 4 is 1 + h // 4.
    remainders = [atom for atom in dividend.atoms if _dividend_modulo(atoms, atom, divisor) is not None]
    forms = {atom: _forms_of_remainder(atoms, atom)[0] for atom in remainders}
    return dividend.substitute(forms).divide_down(divisor) if forms else None


def divide_down(atoms: Atoms, dividend: Polynomial[int], divisor: int) -> Polynomial[int]:
    """The quotient of a polynomial by a positive number, rounded down."""
    quotient = short_quotient(atoms, dividend, divisor)
    if quotient is not None:
        return quotient
    expression = floor_quotient(atoms.expression_of(dividend), sympy.Integer(divisor))
    return atoms.polynomial(expression)


def remainder(atoms: Atoms, dividend: Polynomial[int], divisor: int) -> Polynomial[int] | None:
    """The remainder of a polynomial by a positive number; None where sympy's own form is as short."""
    inner = {atom: _dividend_modulo(atoms, atom, divisor) for atom in dividend.atoms}
    replacements = {atom: polynomial for atom, polynomial in inner.items() if polynomial is not None}
    congruent = dividend.substitute(replacements)
    terms = {monomial: int(math.fmod(factor, divisor)) for monomial, factor in congruent.terms.items()}
    reduced = Polynomial(terms)
    if reduced.number is not None:
        return Polynomial.of_number(reduced.number % divisor)
    factors = [factor for monomial, factor in reduced.terms.items() if monomial]
    if all(factor < 0 for factor in factors):
        # -h % 7 is 7 * ((h + 6) // 7) - h.
        multiples = divide_down(atoms, Polynomial.of_number(divisor - 1) - reduced, divisor)
        return reduced + Polynomial.of_number(divisor) * multiples
    if not replacements:
        return None
    quotient = divide_down(atoms, reduced, divisor)
    return reduced - Polynomial.of_number(divisor) * quotient


def rounded_up(atoms: Atoms, expression: sympy.Basic) -> Polynomial[int] | None:
    """The polynomial of `math.ceil(h / 2)`; None for other numbers than a quotient by a positive integer."""
    if not isinstance(expression, IntTrueDiv):
        return None
    dividend, divisor = expression.args
    if not divisor.is_Integer or divisor <= 0:
        return None
    raised = atoms.polynomial(dividend) + Polynomial.of_number(int(divisor) - 1)
    return divide_down(atoms, raised, int(divisor))


def multiples_in(atoms: Atoms, first: Polynomial[int], second: Polynomial[int]) -> dict[int, Polynomial[int]]:
    """The atoms that are multiples if two polynomials are equal, as polynomials of their quotients.

    `16 * (h // 4) * (w // 4) == h * w` holds for positive sizes only where both are multiples of 4, because
    no quotient is larger than its dividend.
    """
    if second.number == 0 and len(first.terms) == 1:
        return _multiples_of_remainder(atoms, first)
    if len(first.terms) != 1 or len(second.terms) != 1:
        return {}
    [(first_atoms, first_factor)] = first.terms.items()
    [(second_atoms, second_factor)] = second.terms.items()
    quotients, dividend_atoms = list(first_atoms), list(second_atoms)
    for atom in first_atoms:
        if atom in dividend_atoms:
            quotients.remove(atom)
            dividend_atoms.remove(atom)
    if first_factor < second_factor:
        quotients, dividend_atoms = dividend_atoms, quotients
    factors = {*first_atoms, *second_atoms}
    dividends = {atom for atom in factors if not isinstance(atoms.atom_expression(atom), FloorDiv)}
    lows = [atoms.bounds(Polynomial.of_atom(atom))[0] for atom in dividends]
    # A product of 0 says nothing about its other factors.
    if min(first_factor, second_factor) <= 0 or not all(low is not None and low > 0 for low in lows):
        return {}
    multiples: dict[int, Polynomial[int]] = {}
    product = min(first_factor, second_factor)
    for quotient in quotients:
        dividend, divisor = _quotient_of_atom(atoms, quotient)
        if dividend not in dividend_atoms:
            return {}
        dividend_atoms.remove(dividend)
        product *= divisor
        multiples[dividend] = Polynomial({(quotient,): divisor})
    return multiples if not dividend_atoms and product == max(first_factor, second_factor) else {}


def _multiples_of_remainder(atoms: Atoms, polynomial: Polynomial[int]) -> dict[int, Polynomial[int]]:
    [(monomial, _)] = polynomial.terms.items()
    expression = atoms.atom_expression(monomial[0]) if len(monomial) == 1 else None
    if not isinstance(expression, REMAINDERS) or not expression.args[1].is_Integer:
        return {}
    dividend, divisor = expression.args
    [dividend_atom, *further_atoms] = atoms.polynomial(dividend).atoms
    if further_atoms or atoms.polynomial(dividend) != Polynomial.of_atom(dividend_atom):
        return {}
    return {dividend_atom: divide_down(atoms, atoms.polynomial(dividend), int(divisor)) * _number(divisor)}


def quotient_of_multiple(
    atoms: Atoms, atom: int, multiples: dict[int, Polynomial[int]]
) -> Polynomial[int] | None:
    """The polynomial of an atom that is a quotient or a remainder of a known multiple; None for others."""
    expression = atoms.atom_expression(atom)
    if not isinstance(expression, (FloorDiv, *REMAINDERS)) or not expression.args[1].is_Integer:
        return None
    dividend = atoms.polynomial(expression.args[0])
    divisor = int(expression.args[1])
    if divisor <= 0:
        return None
    quotient = dividend.substitute(multiples).divide_down(divisor)
    if isinstance(expression, FloorDiv):
        return quotient
    if quotient is None:
        quotient = atoms.polynomial(FloorDiv(*expression.args))
    return dividend - Polynomial.of_number(divisor) * quotient


def _forms_of_remainder(atoms: Atoms, atom: int) -> list[Polynomial[int]]:
    """A remainder by a positive number in terms of quotients; nothing for other atoms."""
    expression = atoms.atom_expression(atom)
    if not isinstance(expression, REMAINDERS) or not expression.args[1].is_Integer:
        return []
    dividend, divisor = atoms.polynomial(expression.args[0]), int(expression.args[1])
    if divisor <= 0:
        return []
    forms = [dividend - Polynomial.of_number(divisor) * divide_down(atoms, dividend, divisor)]
    if divisor == 2:
        # A number is odd exactly if its negative is.
        raised = divide_down(atoms, dividend + Polynomial.of_number(1), divisor)
        forms.append(Polynomial.of_number(divisor) * raised - dividend)
    return forms


def _dividend_modulo(atoms: Atoms, atom: int, divisor: int) -> Polynomial[int] | None:
    """The dividend of an atom that is a remainder by a multiple of the divisor, to which it is congruent."""
    expression = atoms.atom_expression(atom)
    if not isinstance(expression, REMAINDERS):
        return None
    dividend, modulus = expression.args
    return atoms.polynomial(dividend) if modulus.is_Integer and modulus % divisor == 0 else None


def _quotient_of_atom(atoms: Atoms, atom: int) -> tuple[int | None, int]:
    """The atom and the number whose quotient an atom is; (None, 1) for other atoms."""
    expression = atoms.atom_expression(atom)
    if not isinstance(expression, FloorDiv) or not expression.args[1].is_Integer:
        return None, 1
    dividend = atoms.polynomial(expression.args[0])
    [*dividend_atoms] = dividend.atoms
    if len(dividend_atoms) != 1 or dividend != Polynomial.of_atom(dividend_atoms[0]):
        return None, 1
    return dividend_atoms[0], int(expression.args[1])


def _number(number: sympy.Basic) -> Polynomial[int]:
    return Polynomial.of_number(int(number))

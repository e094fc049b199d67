"""Polynomials of sizes: their arithmetic against Python's integers, their bounds against values in range."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from opsetta.registration.size_algebra.polynomials import Bounds, Polynomial

ATOMS = 3
monomials = st.lists(st.integers(0, ATOMS - 1), max_size=3).map(lambda atoms: tuple(sorted(atoms)))
polynomials = st.dictionaries(monomials, st.integers(-9, 9), max_size=5).map(Polynomial)
values = st.lists(st.integers(-20, 20), min_size=ATOMS, max_size=ATOMS)


@st.composite
def ranges_and_values(draw: st.DrawFn) -> tuple[list[Bounds], list[int]]:
    """A range for each atom, with or without ends, and a value in it."""
    ranges: list[Bounds] = []
    chosen = []
    for _ in range(ATOMS):
        low, high = sorted(draw(st.tuples(st.integers(-5, 30), st.integers(-5, 30))))
        chosen.append(draw(st.integers(low, high)))
        ranges.append((draw(st.sampled_from([low, None])), draw(st.sampled_from([high, None]))))
    return ranges, chosen


@given(polynomials, polynomials, values)
def test_arithmetic_is_that_of_integers(a: Polynomial, b: Polynomial, sizes: list[int]) -> None:
    def value(polynomial: Polynomial) -> int:
        return polynomial.value(sizes.__getitem__)

    assert value(a + b) == value(a) + value(b)
    assert value(a - b) == value(a) - value(b)
    assert value(a * b) == value(a) * value(b)
    assert value(-a) == -value(a)


@given(polynomials, polynomials, polynomials)
def test_the_form_is_canonical(a: Polynomial, b: Polynomial, c: Polynomial) -> None:
    assert (a + b) * c == c * b + a * c
    assert hash((a + b) * c) == hash(c * b + a * c)
    assert (a - a).number == 0


@given(polynomials, monomials, st.integers(-9, 9).filter(bool))
def test_a_product_is_divided_exactly(a: Polynomial, monomial: tuple[int, ...], factor: int) -> None:
    divisor = Polynomial({monomial: factor})
    assert (a * divisor).divide(divisor) == a


def test_an_inexact_quotient_is_none() -> None:
    n, m = Polynomial.of_atom(0), Polynomial.of_atom(1)
    two = Polynomial.of_number(2)
    assert (n + two * m).divide(two) is None
    assert n.divide(m) is None
    assert n.divide(n + m) is None


@given(polynomials, st.dictionaries(st.integers(0, ATOMS - 1), polynomials), values)
def test_substitution_keeps_the_value(
    a: Polynomial, replaced: dict[int, Polynomial], sizes: list[int]
) -> None:
    def value(atom: int) -> int:
        return replaced[atom].value(sizes.__getitem__) if atom in replaced else sizes[atom]

    assert a.substitute(replaced).value(sizes.__getitem__) == a.value(value)


@given(polynomials, ranges_and_values())
def test_bounds_hold_for_every_value(a: Polynomial, known: tuple[list[Bounds], list[int]]) -> None:
    ranges, sizes = known
    low, high = a.bounds(ranges.__getitem__)
    value = a.value(sizes.__getitem__)
    assert low is None or low <= value
    assert high is None or value <= high


@given(polynomials, values)
def test_divisibility_never_denies_a_root(a: Polynomial, sizes: list[int]) -> None:
    assume(a.value(sizes.__getitem__) == 0)
    assert not a.has_no_root()


@pytest.mark.parametrize(
    ("terms", "low"),
    [
        ({(0, 1): 1, (0,): -1}, 2),
        ({(0, 1, 2): 1, (0, 1): -1, (2,): -1}, 2),
        ({(0,): 96}, 192),
        ({(0,): -1}, None),
    ],
)
def test_bounds_of_sizes_from_2(terms: dict[tuple[int, ...], int], low: int | None) -> None:
    assert Polynomial(terms).bounds(lambda atom: (2, None))[0] == low


def test_products_of_many_sizes_have_no_bounds() -> None:
    assert Polynomial({tuple(range(40)): 1}).bounds(lambda atom: (2, None)) == (None, None)

"""Symbolic numbers: their arithmetic, and their decisions, against Python's integers at many sizes."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import sympy
import torch
from hypothesis import given

from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment
from opsetta.exporter.torch_boundary import symbolic_numbers
from opsetta.exporter.torch_boundary.symbolic_sizes import new_symbol

EXAMPLE = (3, 7, 10)
POINTS = (*itertools.product((2, 3, 5), (2, 7, 11), (2, 4, 10)), EXAMPLE, (100, 99, 101), (64, 512, 2))
Number = Any
Term = Callable[[tuple[Number, ...]], Number]

OPERATORS: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
DIVISIONS: dict[str, Callable[[Number, Number], Number]] = {"//": operator.floordiv, "%": operator.mod}
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def environment_and_sizes() -> tuple[SizeEnvironment, list[sympy.Symbol], tuple[torch.SymInt, ...]]:
    environment = SizeEnvironment()
    symbols = [new_symbol(environment, f"size{i}", size) for i, size in enumerate(EXAMPLE)]
    numbers = [
        environment.create_symintnode(symbol, hint=size)
        for symbol, size in zip(symbols, EXAMPLE, strict=True)
    ]
    return environment, symbols, tuple(numbers)


def size(position: int) -> Term:
    return lambda sizes: sizes[position]


def constant(number: int) -> Term:
    return lambda sizes: number


def applied(function: Callable[[Number, Number], Number], left: Term, right: Term) -> Term:
    return lambda sizes: function(left(sizes), right(sizes))


divisors = st.integers(0, 2).map(size) | st.sampled_from([1, 2, 3, 4, 8]).map(constant)
terms: st.SearchStrategy[Term] = st.recursive(
    st.integers(0, 2).map(size) | st.integers(-4, 9).map(constant),
    lambda inner: (
        st.builds(applied, st.sampled_from(list(OPERATORS.values())), inner, inner)
        | st.builds(applied, st.sampled_from(list(DIVISIONS.values())), inner, divisors)
    ),
    max_leaves=7,
)


def at(number: Number, symbols: list[sympy.Symbol], point: tuple[int, ...]) -> Any:
    """The value of a symbolic number when its symbols are the sizes of a point."""
    if not isinstance(number, (torch.SymInt, torch.SymBool)):
        return number
    found = number.node.expr.xreplace(dict(zip(symbols, map(sympy.Integer, point), strict=True)))
    return bool(found) if isinstance(number, torch.SymBool) else int(found)


@given(terms)
def test_arithmetic_is_that_of_integers(term: Term) -> None:
    environment, symbols, sizes = environment_and_sizes()
    number = term(sizes)
    for point in POINTS:
        assert at(number, symbols, point) == term(point)
    if isinstance(number, torch.SymInt):
        assert number.node.hint == term(EXAMPLE)
    assert not environment.guards


@given(terms, terms, st.sampled_from(COMPARISONS))
def test_what_is_known_holds_at_every_size(left: Term, right: Term, compare: Any) -> None:
    _, symbols, sizes = environment_and_sizes()
    condition = compare(left(sizes), right(sizes))
    known = condition.node.known_answer() if isinstance(condition, torch.SymBool) else condition
    for point in POINTS:
        expected = compare(left(point), right(point))
        assert at(condition, symbols, point) == expected
        assert known in (None, expected)


@hypothesis.settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(terms, terms, st.sampled_from(COMPARISONS)), min_size=1, max_size=3))
def test_decisions_hold_wherever_the_guards_do(questions: list[tuple[Term, Term, Any]]) -> None:
    environment, symbols, sizes = environment_and_sizes()
    answers = [bool(compare(left(sizes), right(sizes))) for left, right, compare in questions]
    assert answers == [compare(left(EXAMPLE), right(EXAMPLE)) for left, right, compare in questions]
    for point in POINTS:
        values = dict(zip(symbols, map(sympy.Integer, point), strict=True))
        guards = [guard.expr.xreplace(values) for guard in environment.guards]
        if all(map(bool, guards)):
            assert answers == [compare(left(point), right(point)) for left, right, compare in questions]


@pytest.mark.parametrize(
    "decide",
    [
        lambda n, m, k: n * m * 4 == 0,
        lambda n, m, k: n * m < n,
        lambda n, m, k: 2 * n + 1 == 2 * m,
        lambda n, m, k: n * m * k // k == n * m,
        lambda n, m, k: torch.sym_max(n, 1) == n,
        lambda n, m, k: (n == m) & (n < 2),
        lambda n, m, k: torch.sym_not(n >= 2),
    ],
)
def test_what_holds_for_all_sizes_is_no_guard(decide: Callable[..., Any]) -> None:
    environment, _, sizes = environment_and_sizes()
    condition = decide(*sizes)
    assert condition.node.known_answer() is not None
    bool(condition)
    assert not environment.guards


@pytest.mark.parametrize(
    ("decide", "guards"),
    [
        (lambda n, m, k: n < 5, 1),
        (lambda n, m, k: n * 2 == m - 1, 1),
        (lambda n, m, k: n % 3 == 0, 1),
        (lambda n, m, k: (n < 5) | (n > 50), 1),
        (lambda n, m, k: n >= 2, 0),
    ],
)
def test_what_the_example_decides_is_one_guard(decide: Callable[..., Any], guards: int) -> None:
    environment, _, sizes = environment_and_sizes()
    for _ in range(2):
        bool(decide(*sizes))
    assert len(environment.guards) == guards
    line = environment.guards[0].sloc.framework_loc if guards else None
    assert line is None or line.filename == __file__


def test_a_guard_that_sizes_are_equal_makes_them_one() -> None:
    environment, _, (n, m, _) = environment_and_sizes()
    product = n * 2 + 1
    assert product == m
    assert product.node.expr == m.node.expr
    assert (product * 4 - m * 4).node.maybe_as_int() == 0
    assert (m * n - product * n).node.maybe_as_int() == 0
    assert len(environment.guards) == 1


def test_a_guard_without_effect_outside_of_its_context_is_asked_again() -> None:
    environment, _, (n, _, _) = environment_and_sizes()
    with environment.suppress_guards():
        assert n < 5
    assert not environment.guards
    assert n < 5
    assert len(environment.guards) == 1


def test_a_specialised_size_is_a_number() -> None:
    _, _, (n, _, _) = environment_and_sizes()
    twice = n * 2
    assert int(n) == 3
    assert twice.node.maybe_as_int() == 6


class TestOfData:
    """Numbers that depend on data have no hint."""

    def test_nothing_is_known_at_first(self) -> None:
        number = SizeEnvironment().create_unbacked_symint()
        assert not number.node.has_hint()
        assert (number >= 0).node.known_answer() is None
        with pytest.raises(RuntimeError, match="Could not guard on data-dependent expression"):
            bool(number == 3)

    def test_checks_become_known(self) -> None:
        number = SizeEnvironment().create_unbacked_symint()
        torch._check(number >= 0)
        torch._check(number <= 9)
        assert (number * 2 + 1 > 0).node.known_answer() is True
        assert (number == 10).node.known_answer() is False
        assert bool(number < 10)

    def test_a_fallback_is_no_decision(self) -> None:
        from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

        environment = SizeEnvironment()
        number = environment.create_unbacked_symint()
        condition = number == 5
        assert guard_or_false(condition) is False
        assert guard_or_true(condition) is True
        assert not environment.guards


def test_many_operations_need_no_recursion() -> None:
    _, symbols, (n, m, _) = environment_and_sizes()
    total: Any = 0
    for i in range(3000):
        total = total + n * (i % 3) + m
    assert at(total, symbols, (5, 7, 2)) == sum(5 * (i % 3) + 7 for i in range(3000))


@pytest.mark.parametrize(
    "condition",
    [
        lambda n, m, k: 6 * (n // 3) == n * 2,
        lambda n, m, k: n % 3 == 0,
        lambda n, m, k: 6 * (k // 2) * (n // 3) * m == n * m * k,
    ],
)
def test_a_guard_that_a_size_is_a_multiple_decides_later_questions(condition: Callable[..., Any]) -> None:
    environment, _, (n, m, _) = environment_and_sizes()
    k = environment.create_symintnode(new_symbol(environment, "even", 8), hint=8)
    assert condition(n, m, k)
    guards = len(environment.guards)
    assert n // 3 * 3 == n
    assert n // 3 * m * 3 == m * n
    assert (m * n) // 3 == n // 3 * m
    assert (n * m) // (n // 3) == 3 * m
    assert n % 3 == 0
    assert len(environment.guards) == guards


def test_a_size_padded_to_a_multiple_has_a_short_form() -> None:
    environment, _, (n, m, _) = environment_and_sizes()
    padded = n + (7 - n % 7) % 7
    assert str(padded // 7) == str((n + 6) // 7)
    assert n + (-n % 7) == padded == math.ceil(n / 7) * 7 == padded // 7 * 7
    assert padded * m // 7 == (n + 6) // 7 * m
    assert (n + 7 - n % 7) // 7 == n // 7 + 1
    assert not environment.guards


@pytest.mark.parametrize("number", [-1, 0, 1, 3])
def test_a_size_exceeds_what_it_exceeds_for_all_sizes(number: int) -> None:
    _, _, (n, m, _) = environment_and_sizes()
    sizes = (n, n * m, n - 2, n - m, n // 2, 3)
    expected = [symbolic_numbers.decide_condition(item > number) is True for item in sizes]
    assert [symbolic_numbers.exceeds(item, number) for item in sizes] == expected
    assert [symbolic_numbers.exceeds(item, number) for item in sizes] == expected


def test_a_size_keeps_the_number_that_it_exceeds(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, (n, m, _) = environment_and_sizes()
    assert symbolic_numbers.exceeds(n * m, 1)
    monkeypatch.setattr(symbolic_numbers, "decide_condition", lambda condition: None)
    assert [symbolic_numbers.exceeds(m * n, number) for number in (0, 1, 2)] == [True, True, False]

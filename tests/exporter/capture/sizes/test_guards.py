"""Conditions that torch records, as text."""

from __future__ import annotations

import itertools

import pytest
import sympy

from opsetta.exporter.capture.sizes.conditions.guards import Guard
from opsetta.exporter.captured_graph import dimensions
from opsetta.exporter.torch_boundary.symbolic_sizes import Mod, PythonMod

SIZE = sympy.Symbol("s0", integer=True, nonnegative=True)
OTHER = sympy.Symbol("s1", integer=True, nonnegative=True)
NAMES = {SIZE: "n", OTHER: "m"}


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (sympy.Le(Mod(SIZE, 4), 0), "n % 4 == 0"),
        (sympy.Gt(Mod(SIZE, 4), 0), "n % 4 != 0"),
        (sympy.Le(PythonMod(-SIZE, 4), 0), "-n % 4 == 0"),
        (sympy.Le(PythonMod(SIZE, 3 - OTHER), 0), "n % (3 - m) <= 0"),
        (sympy.Le(Mod(SIZE, 4), 1), "n % 4 <= 1"),
    ],
)
def test_a_remainder_that_is_at_most_0_is_0(condition: sympy.Basic, text: str) -> None:
    guard = Guard(condition, {symbol: NAMES[symbol] for symbol in condition.free_symbols}, "")
    assert guard.text == text
    for point in itertools.product(range(12), (2, 5)):
        sizes = dict(zip(("n", "m"), point, strict=True))
        assert dimensions.evaluate(text, sizes) is guard.holds(sizes)

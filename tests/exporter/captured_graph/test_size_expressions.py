"""Expressions of sizes have the values that Python gives; what is not arithmetic has none."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from opsetta import DimensionError
from opsetta.exporter.captured_graph import dimensions
from opsetta.exporter.captured_graph.dimensions import SizeRestriction, evaluate

SIZES = (0, 1, 2, 3, 5, 7, 10, 25, 49, 51, 1023)

OF_PYTHON = [
    "n / m > 1.5",
    "n / m == m / n",
    "n * 0.1 * 3 == n * 0.3",
    "n * 0.5 + m * 0.25 > 4.2",
    "math.ceil(n / 3) * 3 != n",
    "math.floor(-n / 4) == -(n // 4)",
    "round(n / 2) == round(m / 2)",
    "round(n / 3, 1) <= 2.3",
    "int(n * 0.7) == n * 7 // 10",
    "math.trunc(-n / 2) < m",
    "-n % 4 == (n - m) % 4",
    "(m - n) // 3 > -2",
    "n % -3 == -1",
    "n ** 0.5 > m",
    "math.sqrt(n) == int(math.sqrt(n))",
    "n // 2.5 < m % 1.5",
    "max(n, m / 2) - min(n, 3.5) > abs(m - n)",
    "m != 0 and n / m > 2.0",
    "m == 0 or not n % m",
    "1 <= n < m <= 51",
    "(n if n > m else m) == 7",
    "n * 10 ** 17 == float(n * 10 ** 17)",
    "n * 9007199254740993 > m * 9007199254740992.0",
    "n + 9007199254740993 == 9007199254740992.0 + n",
    "1 << n % 7 > m & 6 | 1",
    "True",
    "n / 0 == 1",
    "math.sqrt(n - 8) > 1",
    "(n - 8) ** 0.5 > 1",
]


def python_value(text: str, sizes: dict[str, int]) -> Any:
    try:
        return eval(text, {"math": math}, sizes)
    except (ArithmeticError, ValueError, TypeError):
        return None


@pytest.mark.parametrize("text", OF_PYTHON)
def test_a_condition_has_the_value_that_python_gives(text: str) -> None:
    for n, m in itertools.product(SIZES, SIZES):
        sizes = {"n": n, "m": m}
        assert evaluate(text, sizes) == python_value(text, sizes), sizes


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("IntTrueDiv(w, h) > 1.5", "w / h > 1.5"),
        ("TruncToInt(0.7*ToFloat(h)) == 3", "int(h * 0.7) == 3"),
        ("2*CeilToInt(IntTrueDiv(h, 2)) == h", "math.ceil(h / 2) * 2 == h"),
        (
            "FloorToInt(FloatTrueDiv(ToFloat(w), 2.5)) < RoundToInt(IntTrueDiv(h, 2))",
            "w // 2.5 < round(h / 2)",
        ),
        ("FloatPow(ToFloat(h), 0.5) > OpaqueUnaryFn_sqrt(ToFloat(w))", "h ** 0.5 > w ** 0.5"),
        ("Max(1, PythonMod(h, 4)) == Min(w, CeilDiv(h, 4))", "max(1, h % 4) == min(w, -(-h // 4))"),
    ],
)
def test_the_names_of_torch_in_older_files_are_read(text: str, plain: str) -> None:
    for h, w in itertools.product(SIZES[1:], SIZES[1:]):
        sizes = {"h": h, "w": w}
        assert evaluate(text, sizes) is evaluate(plain, sizes)
        assert evaluate(text, sizes) is not None


@pytest.mark.parametrize("name", ["batch size", "max", "math", "in", "not", "x-y", "été", "n.1", "1st"])
def test_a_dimension_may_have_any_name(name: str) -> None:
    assert evaluate(f"max({name}, 2) % 4 == math.ceil({name} / 2)", {name: 2, "n": 5}) is False
    assert evaluate(f"{name} * 2 == n + 1", {name: 3, "n": 5}) is True


@pytest.mark.parametrize(
    "text",
    [
        "unknown > 1",
        "erf(n) > 1",
        "math.gamma(n)",
        "n.real > 1",
        "(lambda: 1)() == 1",
        "[n][0] > 1",
        "max(*(n, 2))",
        "round(number=n)",
        "'n' * 9",
        "n if n",
        "9 ** 9 ** 9 ** 9 > n",
        "(10 ** 1000) ** 1000",
        "1 << 10 ** 9",
        "round(n, -10 ** 9)",
        "(" * 10_000,
        "-" * 200_000 + "n",
    ],
)
@pytest.mark.usefixtures("two_minutes_at_most")
def test_what_is_not_arithmetic_has_no_value(text: str) -> None:
    assert evaluate(text, {"n": 6}) is None


@pytest.mark.parametrize(
    "condition", ["IntTrueDiv(n, m) > 1", "erf(n) > 0", "n / (n - 4) > 0", "n >", "n > 9"]
)
def test_a_condition_that_is_not_known_to_be_true_is_refused(condition: str) -> None:
    metadata: dict[str, str] = {}
    dimensions.write_restrictions(metadata, [SizeRestriction(condition, "why", "model.py:1")])
    with pytest.raises(DimensionError, match="model is valid for"):
        dimensions.SizeCheck([("x", ["n", 3])], metadata)([(4, 3)])

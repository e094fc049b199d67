"""Conditions that the model's code asks for only on another branch than the example's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import nn

import opsetta
from opsetta.exporter.capture.sizes.conditions.branches import (
    MOST_BRANCHES,
    Branch,
    BranchSearch,
    Failure,
    Trials,
)
from opsetta.exporter.capture.sizes.conditions.guards import Guard, Point

SIZES = [(n, m) for n in (1, 2, 3, 6, 7, 9, 14, 30) for m in (1, 2, 5, 7, 11, 14, 40)]


def at_one_and_far(n: int, m: int) -> bool:
    return n == 1 and m > 10


def at_one_of_either(n: int, m: int) -> bool:
    if m == 1 and n % 7 == 0:
        return True
    return n == 1 and m == 14


def shape_of_two(n: int, m: int) -> bool:
    return (n, m) == (7, 11)


def chained(n: int, m: int) -> bool:
    return 5 < n < m < 12


def three_deep(n: int, m: int) -> bool:
    return n > 5 and m > 6 and n * m % 2 == 1


def product_of_two(n: int, m: int) -> bool:
    return math.sqrt(n * m) > 7.5


def at_one_both_ways(n: int, m: int) -> bool:
    return (m > 3 if n == 1 else m == 2) and n < 20


CONDITIONS = [
    at_one_and_far,
    at_one_of_either,
    shape_of_two,
    chained,
    three_deep,
    product_of_two,
    at_one_both_ways,
]


class Hooked(nn.Module):
    """A hook of a submodule that is called twice asks for sizes."""

    def __init__(self, condition: Callable[[int, int], bool]):
        super().__init__()
        self.inner = nn.ReLU()

        def hook(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
            return result * 2 if condition(*result.shape) else result - 1

        self.inner.register_forward_hook(hook)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner(-x)


def refused_and_right(program: opsetta.Program, model: Callable[..., torch.Tensor]) -> tuple[int, int]:
    """The number of refused and right results; asserts that none is wrong."""
    refused = right = 0
    for sizes in SIZES:
        x = torch.randn(sizes)
        try:
            result = program(x)
        except opsetta.DimensionError:
            refused += 1
            continue
        assert torch.equal(torch.as_tensor(result), model(x)), sizes
        right += 1
    return refused, right


@pytest.mark.parametrize(
    ("capture", "example"), [("direct", (3, 8)), ("direct", (30, 40)), ("torch.export", (3, 8))]
)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_branch_on_another_branch_is_refused_or_right(
    condition: Callable[[int, int], bool], capture: str, example: tuple[int, int]
) -> None:
    model = Hooked(condition).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(
            model,
            torch.ones(example),
            opset=15,
            dynamic_shapes=({0: "n", 1: "m"},),
            capture=capture,
            narrow=True,
        )
    refused, _ = refused_and_right(program, model)
    assert refused
    program(torch.ones(example))


def test_a_nested_condition_restricts_its_branch_only() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if at_one_and_far(*x.shape) else x - 1

    with pytest.warns(UserWarning, match="valid for n != 1 or m <= 10"):
        program = opsetta.export(model, torch.ones(3, 8), opset=15, dynamic_shapes=({0: "n", 1: "m"},))
    [restriction] = program.dimensions["m"].restrictions
    assert restriction.condition == "n != 1 or m <= 10"
    assert "test_branches.py:" in restriction.line
    assert refused_and_right(program, model) == (3, len(SIZES) - 3)


def test_a_branch_without_further_conditions_adds_no_restriction() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 4 and x.dim() > 3 else x - 1

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = opsetta.export(model, torch.ones(3, 8), opset=15, dynamic_shapes=({0: "n", 1: "m"},))
    assert not program.dimensions["n"].restrictions


N = sympy.Symbol("n", integer=True, positive=True)


def _trials(number_of_operators: int, points: list[Point], conditions: list[str]) -> Trials:
    """Trials of a model that computes something else at size 7 alone; notes points and restrictions."""

    def failure_at(point: Point) -> Failure | None:
        points.append(point)
        return ("other", "") if point["n"] == 7 else None

    return Trials(
        base={"n": 2},
        number_of_operators=number_of_operators,
        limit=dict,
        is_refused=lambda point: point["n"] == 7 and bool(conditions),
        failure_at=failure_at,
        valid_points=lambda: [{"n": n} for n in {point["n"] for point in points} - {7}],
        restrict=lambda condition, failure, lines: conditions.append(condition),
        is_restriction=lambda condition: condition in conditions,
    )


def test_the_number_of_branches_is_bounded() -> None:
    conditions = [Guard(sympy.Ne(N, size), {N: "n"}, "") for size in range(8, 48)]
    search = BranchSearch(_trials(1, [], []))
    search.try_branch(Branch({"n": 2}), conditions)
    assert len(search.unexplored) == MOST_BRANCHES


def test_conditions_of_kernels_and_texts_have_one_trial_in_a_large_model() -> None:
    of_kernel = Guard(sympy.Lt(N, 30), {N: "n"}, "")
    of_text = Guard(sympy.Ne(N, 50), {N: "n"}, "", is_text=True)
    points: list[Point] = []
    BranchSearch(_trials(1000, points, [])).repeat([of_kernel, of_text], {of_text.expression})
    assert len(points) == 2
    for guard in (of_kernel, of_text):
        assert not all(guard.holds(point) for point in points)


@pytest.mark.parametrize(("number_of_operators", "most"), [(10, 1000), (1000, 24)], ids=["small", "large"])
def test_conditions_of_a_large_model_share_trials(number_of_operators: int, most: int) -> None:
    guards = [Guard(sympy.Lt(N, size), {N: "n"}, "") for size in range(20, 40)]
    points: list[Point] = []
    conditions: list[str] = []
    BranchSearch(_trials(number_of_operators, points, conditions)).repeat(
        [*guards, Guard(sympy.Ne(N, 7), {N: "n"}, "")],
        {sympy.Ne(N, 7), *(guard.expression for guard in guards)},
    )
    assert conditions == ["n != 7"]
    for guard in guards:
        assert sum(not guard.holds({"n": n}) for n in {point["n"] for point in points}) >= 3
    assert len(points) <= most

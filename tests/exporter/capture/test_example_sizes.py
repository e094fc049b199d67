"""A program is valid for its own example, or there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opsetta

CAPTURES = ("direct", "torch.export")


def scattered(x: torch.Tensor) -> torch.Tensor:
    """Indexing views a value of one row without its first axis."""
    y = x.clone()
    y[torch.arange(x.shape[0]), 1] = x[:, 2] * 3
    return y


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1]
    y[:, 2, 1:] = x[:, 0, :-1] - 2
    return y


def added_at_rows(x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(x.shape[0])
    return x.index_put((rows, rows * 0), x[:, 1], accumulate=True)


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[torch.arange(x.shape[0]) >= 0] = x * 2
    return y


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("model", [scattered, assigned, added_at_rows, masked])
@pytest.mark.parametrize("rows", [1, 2])
def test_writes_by_index_are_valid_for_one_row(model: Callable[..., Any], rows: int, capture: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = opsetta.export(
            model, torch.randn(rows, 3, 4), opset=17, dynamic_shapes=({0: "b"},), capture=capture
        )
    for size in (1, 2, 5):
        program.verify((torch.randn(size, 3, 4),))


def other_branch_for_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] * 0.5 < 0.9 else x.double()


def count_of_rows(x: torch.Tensor) -> torch.Tensor:
    """The number of rows, computed in floats, is fixed at that of the enlarged example."""
    rows = int(x.shape[0] * (x.shape[1] % 4 + 8) / 7 / ((x.shape[1] % 4 + 8) / 7))
    return x.reshape(rows, -1) * rows


def without_axis_of_one(x: torch.Tensor) -> torch.Tensor:
    return x.squeeze() * 2


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(("sizes", "axis"), [((1, 6), 0), ((3, 1), 1), ((1, 1), 0)])
def test_squeeze_of_a_dynamic_axis_gives_both_ranks(sizes: tuple[int, int], axis: int, capture: str) -> None:
    program = opsetta.export(
        without_axis_of_one, torch.ones(sizes), opset=9, dynamic_shapes=({axis: "n"},), capture=capture
    )
    for size in (1, 2, 5):
        other_sizes = list(sizes)
        other_sizes[axis] = size
        program.verify((torch.randn(other_sizes),))


@pytest.mark.parametrize(
    ("model", "capture"),
    [
        *((other_branch_for_one, capture) for capture in CAPTURES),
        # Direct capture computes the number of rows.
        (count_of_rows, "torch.export"),
    ],
)
def test_a_program_that_would_refuse_its_example_is_an_error(model: Callable[..., Any], capture: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(opsetta.CaptureError, match=r"for the example itself|fixes it\s+at"):
            opsetta.export(model, torch.ones(1, 6), opset=17, dynamic_shapes=({0: "b"},), capture=capture)
        opsetta.export(model, torch.ones(3, 6), opset=17, dynamic_shapes=({1: "n"},), capture=capture)


def test_an_axis_that_follows_from_another_fits_the_example() -> None:
    """The code makes a number of a sum, which the enlarged example fixes at another one."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return x * len([0] * (x.shape[0] + x.shape[1]))

    with pytest.raises(opsetta.CaptureError, match="for the example itself"):
        opsetta.export(model, torch.ones(1, 20), opset=17, dynamic_shapes=({0: "n", 1: "m"},))


FLOAT_CONDITIONS: list[Callable[[int, int], Any]] = [
    lambda n, m: n / m > 1.25,
    lambda n, m: n * 0.1 * 3 == n * 0.3,
    lambda n, m: n * 0.5 + m * 0.25 <= 4.2,
    lambda n, m: round(n / 2) % 2 == 0 or m < 3,
    lambda n, m: n * m < 4,
    lambda n, m: (n - 7) // 3 > (m - 5) % 4,
    lambda n, m: n**0.5 == int(n**0.5) if n < 2 else m / 3 < n,
]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("condition", FLOAT_CONDITIONS)
def test_a_branch_is_refused_or_right_at_every_size(condition: Callable[..., Any], capture: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if condition(*x.shape) else x - 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(
            model,
            torch.ones(6, 4),
            opset=15,
            dynamic_shapes=({0: "n", 1: "m"},),
            capture=capture,
            narrow=True,
        )
    answers = set()
    for n in (0, 1, 2, 3, 5, 6, 7, 13):
        for m in (0, 1, 2, 4, 5, 9):
            x = torch.ones(n, m)
            try:
                result = program(x)
            except opsetta.DimensionError:
                answers.add("refused")
                continue
            answers.add("right")
            assert torch.equal(torch.as_tensor(result), model(x)), (n, m)
    assert answers == {"refused", "right"}

"""Calls of a program whose arguments are not those of the example name the arguments that differ."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import opsetta


def combine(a: dict[str, Tensor], b: list[Tensor], scale: float = 2.0, *, c: Tensor) -> Tensor:
    return a["u"] + b[0] * scale + c


def add_all(*terms: Tensor, **further: Tensor) -> Tensor:
    return sum(terms, further["last"])


X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(scope="module")
def program() -> opsetta.Program:
    return opsetta.export(combine, ({"u": X}, [X]), {"c": X}, opset=9)


def test_arguments_are_bound_by_position_or_by_name(program: opsetta.Program) -> None:
    expected = combine({"u": X}, [X], c=X)
    torch.testing.assert_close(program({"u": X}, [X], c=X), expected)
    torch.testing.assert_close(program(c=X, b=[X], a={"u": X}), expected)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "'a' is missing; 'b' is missing; 'c' is missing"),
        (
            ({"u": X}, [X], 2.0, X),
            {},
            "'c' is missing; the example has no argument 'scale', '4'",
        ),
        (({"u": X}, [X]), {"c": X, "b": [X]}, "'b' is passed twice"),
        (({"u": X}, [X]), {"c": X, "d": X}, "the example has no argument 'd'"),
        (({"u": X}, X), {"c": X}, "'b' is a single value, not a list of 1"),
        (
            ({"v": X}, [X]),
            {"c": X},
            "'a' is a dict of 1 with the keys 'v', not a dict of 1 with the keys 'u'",
        ),
        (({"u": X}, (X, X)), {"c": X}, "'b' is a tuple of 2, not a list of 1"),
    ],
)
def test_the_arguments_that_differ_are_named(
    program: opsetta.Program, args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(
        opsetta.UsageError,
        match=f"the arguments differ from the example's in number, names or structure: {message}$",
    ):
        program(*args, **kwargs)


@pytest.mark.parametrize(
    ("count", "message"), [(1, "'2' is missing"), (3, "the example has no argument '3'")]
)
def test_a_variable_number_of_arguments_is_that_of_the_example(count: int, message: str) -> None:
    program = opsetta.export(add_all, (X, X), {"last": X}, opset=9)
    torch.testing.assert_close(program(X, X, last=X), 3 * X)
    with pytest.raises(opsetta.UsageError, match=message):
        program(*[X] * count, last=X)


def test_a_class_is_no_model() -> None:
    with pytest.raises(opsetta.CaptureError, match=r"an instance: Linear\(\.\.\.\), not the class itself"):
        opsetta.export(torch.nn.Linear, (X,))

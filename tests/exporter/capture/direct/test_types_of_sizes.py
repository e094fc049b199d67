"""A size is an `int` for the model's code, as in eager PyTorch, and a condition on sizes a `bool`."""

from __future__ import annotations

import numbers
from collections.abc import Callable

import pytest
import torch

import opsetta

Model = Callable[[torch.Tensor], torch.Tensor]


def of_a_size(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if isinstance(x.shape[0], int) else x + 3


def of_several_types(x: torch.Tensor) -> torch.Tensor:
    size: object = x.shape[0]
    if isinstance(size, (list, tuple)) or not isinstance(size, float | numbers.Integral):
        return x - 1
    return x * x.shape[0]


def by_type(x: torch.Tensor) -> torch.Tensor:
    size = x.shape[0]
    pair = (size, size) if type(size) is int else size
    return x.new_ones(pair) + x.sum()


def of_a_quotient(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[0] / 2
    return x * 3 if isinstance(half, float) and not isinstance(half, int) else x


def of_a_condition(x: torch.Tensor) -> torch.Tensor:
    is_long = x.shape[0] > 1
    return x + 1 if isinstance(is_long, bool) and isinstance(is_long, int) else x


def of_rows(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0] > 0]
    return rows * 2 if isinstance(rows.shape[0], int) else rows


def of_a_type(x: torch.Tensor) -> torch.Tensor:
    return x + 2 if isinstance(torch.Tensor, type) and type(x) is torch.Tensor else x


MODELS = (of_a_size, of_several_types, by_type, of_a_quotient, of_a_condition, of_rows, of_a_type)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("model", MODELS)
def test_the_model_takes_the_path_of_eager_pytorch(model: Model, capture: str) -> None:
    program = opsetta.export(
        model, (torch.randn(4, 5),), opset=13, dynamic_shapes=({0: "n"},), capture=capture
    )
    for size in (2, 4, 7):
        program.verify((torch.randn(size, 5),))
    assert "isinstance" not in globals()
    assert "type" not in globals()


def test_the_number_of_rows_is_an_int_where_no_size_is_dynamic() -> None:
    opsetta.export(of_rows, (torch.randn(4, 5),), opset=13).verify((torch.ones(4, 5),))

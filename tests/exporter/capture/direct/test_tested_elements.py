"""Branches on whether elements of a tensor of any type are 0, and choices by a mask of bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import opsetta

TESTS_OF_NUMBERS = {
    "all of bytes": lambda mask: mask.to(torch.uint8).all(),
    "any of floats": lambda mask: mask.float().any(),
    "sum of bytes": lambda mask: mask.to(torch.uint8).sum(),
    "not all of integers": lambda mask: not (mask * 2).all(),
    "compared sum": lambda mask: mask.long().sum() > 2,
    "any of one row": lambda mask: mask.int().any(0)[0],
    "truth as a number": lambda mask: mask.all().item() == 1,
    "truth that is not 0": lambda mask: mask.any().item() != 0,
}


@pytest.mark.parametrize("test", TESTS_OF_NUMBERS.values(), ids=TESTS_OF_NUMBERS)
def test_a_test_of_elements_of_any_type_keeps_both_sides(test: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x * 2 if test(mask) else x + 1

    masks = [torch.ones(3, 2, dtype=torch.bool), torch.zeros(3, 2, dtype=torch.bool), torch.eye(3, 2) > 0]
    x = torch.full((3, 2), 3.0)
    program = opsetta.export(Model().eval(), (x, masks[0]), opset=13, capture="direct")
    for mask in masks:
        assert torch.equal(program(x, mask), Model()(x, mask))


@pytest.mark.filterwarnings("ignore:where received a uint8")
@pytest.mark.parametrize(
    "choose",
    [
        lambda mask, x, y: torch.where(mask, x, y),
        lambda mask, x, y: torch.where(condition=mask, input=x, other=0.0),
        lambda mask, x, y: x.where(mask, y),
        lambda mask, x, y: x.where(condition=mask > 1, other=y),
    ],
)
def test_bytes_choose_elements(choose: Any) -> None:
    def model(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> Any:
        return choose(mask, x, y)

    args = torch.randn(2, 3), torch.randn(2, 3), torch.tensor([[0, 1, 2], [2, 0, 0]], dtype=torch.uint8)
    program = opsetta.export(model, args, opset=13, capture="direct")
    assert torch.equal(program(*args), model(*args))

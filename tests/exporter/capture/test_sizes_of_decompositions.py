"""Operators that torch decomposes, for sizes that are computed from others and may be small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import opsetta


def deep(x: torch.Tensor) -> torch.Tensor:
    """The size at the bottom is 1 up to 16 rows and columns."""
    x = F.max_pool2d(x, 8, ceil_mode=True)
    values, places = F.max_pool2d(x, 2, return_indices=True, ceil_mode=True)
    return F.max_unpool2d(values * 2, places, 2)


def of_each_sixteenth(x: torch.Tensor) -> torch.Tensor:
    values, places = F.max_pool2d(x[..., ::16, ::16], 2, return_indices=True)
    return F.max_unpool2d(values * 2, places, 2)


@pytest.mark.parametrize("model", [deep, of_each_sixteenth])
def test_a_size_that_is_computed_from_others_is_not_taken_for_1(model: Callable[..., torch.Tensor]) -> None:
    program = opsetta.export(
        model, (torch.randn(2, 3, 64, 64),), opset=17, dynamic_shapes=({0: "batch", 2: "h", 3: "w"},)
    )
    for shape in [(2, 3, 64, 64), (3, 3, 96, 128), (1, 3, 32, 64), (2, 3, 32, 32)]:
        program.verify((torch.randn(shape),))

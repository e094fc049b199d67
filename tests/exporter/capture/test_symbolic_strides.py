"""A stride that a model reads is the product of the sizes of the axes inside it."""

from __future__ import annotations

import pytest
import torch

import opsetta

from ...opsets import HIGHEST

X = torch.arange(48.0).reshape(2, 4, 6)
SIZES = {"x": {0: "a", 1: "b", 2: "c"}}


def _pairs(x: torch.Tensor) -> torch.Tensor:
    """Rows and the rows after them, by strides."""
    return x.as_strided(
        (x.shape[0], x.shape[1] - 1, 2, x.shape[2]), (x.stride(0), x.stride(1), x.stride(1), 1)
    )


def _sum_of_strides(x: torch.Tensor) -> torch.Tensor:
    return x + sum(place * stride for place, stride in enumerate(x.permute(1, 2, 0).contiguous().mT.stride()))


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_strides_follow_dynamic_sizes(capture: str, opset: int) -> None:
    for model in (lambda x: _pairs(x * 2), _sum_of_strides):
        program = opsetta.export(model, (X,), opset=opset, dynamic_shapes=SIZES, capture=capture)
        program.verify()
        program.verify((torch.randn(3, 5, 7),))

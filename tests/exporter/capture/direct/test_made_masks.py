"""Branches on masks that a model makes itself are decided, whatever the dynamic sizes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opsetta

SIZES = {"x": {0: "batch", 1: "length"}}


def _by(decide: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    """A model that takes another path where `decide` is true."""
    return lambda x: x.sum(1) + 1 if decide(x) else x.sum(1) - 1


def _written(mask: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    write(mask)
    return mask


DECIDED: dict[str, Callable[[Tensor], Any]] = {
    "all ones": lambda x: torch.ones(x.shape).bool().all(),
    "no element": lambda x: torch.zeros(x.shape[1], dtype=torch.bool).any().item(),
    "product and padding": lambda x: (F.pad(torch.ones(x.shape), (0, 2))[:, None] * -1e9 > 0).flatten().any(),
    "two kinds of zero": lambda x: ((1 - torch.ones(x.shape)) * -1.0).reciprocal().isinf().all(),
    "combination": lambda x: torch.cat([torch.full_like(x, 2), torch.full_like(x, 3)]).fmod(5).ne(0).all(),
    "positions": lambda x: (torch.arange(x.shape[1])[None, :, None] + 1 > 0).expand(2, -1, 3).all(),
    "conversion": lambda x: torch.where(torch.ones(x.shape).to(torch.bool), 0.0, -1.0).long().bool().any(),
    "written": lambda x: _written(torch.zeros(x.shape), lambda m: m.t()[1:].fill_(-2)).gt(0).any(),
    "writing nothing": lambda x: _written(
        torch.zeros(x.shape), lambda m: m.masked_fill_(torch.ones(x.shape) == 2, 5.0)
    ).any(),
}
UNDECIDED: dict[str, Callable[[Tensor], Any]] = {
    "sum of floats": lambda x: torch.ones(x.shape).sum() > 3,
    "largest element": lambda x: torch.ones(x.shape).amax(0).sum() > 3,
}
ON_BOTH_SIDES: dict[str, Callable[[Tensor], Any]] = {
    "maybe empty along an axis": lambda x: torch.ones(x.shape).bool().any(0).all(),
    "few positions": lambda x: (torch.arange(x.shape[1]) > 0).all(),
    "input": lambda x: (x > 0.5).any(),
    "maybe empty": lambda x: torch.ones(x.shape).any(),
    "written through a view": lambda x: _written(torch.zeros(x.shape), lambda m: m.t()[1:].fill_(2)).any(),
    "accumulated": lambda x: _written(
        torch.zeros(x.shape[0] + 1, 2),
        lambda m: m.index_put_((torch.tensor([0]),), torch.zeros(()), accumulate=True),
    ).any(),
    "written with its own elements": lambda x: _written(torch.zeros(x.shape), lambda m: m.copy_(m + 1)).any(),
    "changed in place": lambda x: _written(torch.zeros(x.shape), lambda m: m.add_(1)).any(),
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_mask_without_inputs_is_decided(name: str) -> None:
    model = _by(DECIDED[name])
    program = opsetta.export(model, (torch.randn(2, 5),), opset=17, dynamic_shapes=SIZES)
    assert not program.specializations
    assert not any(size.restrictions for size in program.dimensions.values())
    for shape in ((3, 7), (1, 1), (0, 4), (2, 0)):
        program.verify((torch.randn(shape),))


@pytest.mark.parametrize("name", UNDECIDED)
def test_a_number_that_may_be_another_is_refused(name: str) -> None:
    with pytest.raises(opsetta.CaptureError):
        opsetta.export(
            _by(UNDECIDED[name]), (torch.randn(2, 5),), opset=17, dynamic_shapes=SIZES, capture="direct"
        )


@pytest.mark.parametrize("name", ON_BOTH_SIDES)
def test_the_file_decides_about_other_masks(name: str) -> None:
    model = _by(ON_BOTH_SIDES[name])
    program = opsetta.export(model, (torch.randn(2, 5),), opset=17, dynamic_shapes=SIZES)
    for shape in ((3, 7), (1, 1), (0, 4)):
        for x in (torch.ones(shape), -torch.ones(shape)):
            program.verify((x,))


class Constant(nn.Module):
    """Writes to a view of a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        self.table[1:].fill_(x.shape[0])
        return _by(lambda x: (self.table * torch.ones(x.shape[0], 4)).sum() > 3)(x)


def test_a_write_to_a_view_of_a_constant_is_seen() -> None:
    with pytest.raises(opsetta.CaptureError):
        opsetta.export(
            Constant().eval(), (torch.randn(2, 5),), opset=17, dynamic_shapes=SIZES, capture="direct"
        )

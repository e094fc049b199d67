"""Distances to the next multiple, `4 - n % 4`, inside and outside of the branch that tests the remainder."""

import pytest
import torch
import torch.nn.functional as F

import opsetta


class Inside(torch.nn.Module):
    def forward(self, x):
        if x.shape[1] % 4:
            x = F.pad(x, (0, 4 - x.shape[1] % 4))
        return x.view(x.shape[0], -1, 4)


class Outside(torch.nn.Module):
    def forward(self, x):
        rest = x.shape[1] % 4
        if rest:
            x = F.pad(x, (0, 4 - rest))
        return x, torch.arange(4 - rest)


class Factor(torch.nn.Module):
    def forward(self, x):
        rest = x.shape[1] % 4
        if rest:
            x = F.pad(x, (0, 4 - rest))
        return x * (4 - rest)


class Joined(torch.nn.Module):
    def forward(self, x):
        if x.shape[1] % 4:
            x = x + 1
        return torch.cat([x, x.new_ones(x.shape[0], 4 - x.shape[1] % 4)], 1)


@pytest.mark.parametrize("example", [5, 8])
@pytest.mark.parametrize("model", [Inside, Outside, Factor, Joined])
def test_no_size_gives_other_numbers(model, example):
    """What is right inside of the branch only must restrict the sizes."""
    program = opsetta.export(
        model().eval(), (torch.randn(2, example),), opset=17, dynamic_shapes=({1: "n"},), narrow=True
    )
    for size in (1, 3, 4, 5, 8, 13):
        if model is Inside or bool(size % 4) == bool(example % 4):
            program.verify((torch.randn(2, size),))
        else:
            with pytest.raises(opsetta.DimensionError):
                program.verify((torch.randn(2, size),))

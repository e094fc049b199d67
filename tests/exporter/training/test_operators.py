"""Gradients of many operators agree with autograd's."""

import pytest
import torch

import opsetta
from tests.opsets import HIGHEST, is_full_run, named

from . import operators

GROUPS = "ACTIVATIONS LOSSES NORMS INDEXING PADDING REDUCTIONS POOLING CONVOLUTIONS".split()
OPSETS = (7, 9, 13, 18, HIGHEST) if is_full_run() else (9,)


class Sum(torch.nn.Module):
    """The sum of several functions, each of its own parameter; the weights of elements differ."""

    def __init__(self, table):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.table = table
        self.parts = torch.nn.ParameterDict(
            {
                name: torch.nn.Parameter(torch.randn(shape, generator=generator))
                for name, (_, shape) in table.items()
            }
        )

    def forward(self):
        total = torch.zeros(())
        for name, (function, _) in self.table.items():
            result = function(self.parts[name])
            weights = torch.linspace(-1.0, 1.3, result.numel()).reshape(result.shape)
            total = total + (result * weights).sum()
        return total


@pytest.mark.parametrize("group", GROUPS)
def test_gradients_agree_with_autograd(group):
    table = getattr(operators, group)
    program = opsetta.export_training(Sum(table), (), optimizer=None, opset=max(OPSETS))
    assert set(program.signature.gradients) == {f"parts.{name}" for name in table}
    for opset in OPSETS:
        with named(opset):
            program.lower(opset).verify(rtol=1e-5, atol=1e-5)

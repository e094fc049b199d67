"""The comparison of decompositions with kernels sees a rule that computes something else."""

import collections

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opsetta.exporter.torch_boundary.operators import decompositions

from .decompositions import Comparison

RULES = {
    "right": lambda x: x * torch.sigmoid(x),
    "wrong": lambda x: torch.where(x > 3, x, x * torch.sigmoid(x)),
    "of-another-shape": lambda x: (x * torch.sigmoid(x)).flatten(),
    "of-another-type": lambda x: (x * torch.sigmoid(x)).double(),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_compared_with_its_kernel(name, monkeypatch):
    silu = torch.ops.aten.silu.default
    monkeypatch.setattr(decompositions, "table", lambda: {silu: RULES[name]})
    x = torch.linspace(-5, 5, 12).reshape(3, 4)
    calls = collections.Counter()
    comparison = Comparison(
        make_fx(lambda x: torch.nn.functional.silu(x))(x), lambda operator: operator is not silu, calls
    )
    comparison.run(x)
    assert calls == {"aten.silu.default": 1}
    assert not comparison.refused
    assert bool(comparison.differences) is (name != "right")


def test_a_rule_that_cannot_be_traced_is_not_a_difference(monkeypatch):
    silu = torch.ops.aten.silu.default
    monkeypatch.setattr(decompositions, "table", lambda: {silu: lambda x: x if x.sum() > 0 else -x})
    x = torch.ones(3)
    comparison = Comparison(
        make_fx(lambda x: torch.nn.functional.silu(x))(x),
        lambda operator: operator is not silu,
        collections.Counter(),
    )
    comparison.run(x)
    assert comparison.refused == {"aten.silu.default"}
    assert comparison.differences == []

"""The comparison of decompositions with kernels sees a rule that computes something else."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opsetta.exporter.torch_boundary.operators import decompositions

from .decompositions import Comparison, Findings, SymbolicFunctions

RULES = {
    "right": lambda x: x * torch.sigmoid(x),
    "wrong": lambda x: torch.where(x > 3, x, x * torch.sigmoid(x)),
    "of-another-shape": lambda x: (x * torch.sigmoid(x)).flatten(),
    "of-another-type": lambda x: (x * torch.sigmoid(x)).double(),
}
SILU = torch.ops.aten.silu.default


class _AllButSilu(SymbolicFunctions):
    def __call__(self, operator):
        return operator is not SILU


def compare_silu(rule, x, monkeypatch):
    """The findings of a call of silu whose decomposition is `rule`."""
    monkeypatch.setattr(decompositions, "table", lambda: {SILU: rule})
    findings = Findings()
    Comparison(make_fx(lambda x: torch.nn.functional.silu(x))(x), _AllButSilu(9), findings).run(x)
    return findings


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_compared_with_its_kernel(name, monkeypatch):
    findings = compare_silu(RULES[name], torch.linspace(-5, 5, 12).reshape(3, 4), monkeypatch)
    assert findings.calls == {"aten.silu.default": 1}
    assert not findings.refused
    assert [operator for operator, _ in findings.differences] == ["aten.silu.default"] * (name != "right")


def test_a_rule_that_cannot_be_traced_is_not_a_difference(monkeypatch):
    findings = compare_silu(lambda x: x if x.sum() > 0 else -x, torch.ones(3), monkeypatch)
    assert list(findings.refused) == ["aten.silu.default"]
    assert findings.differences == []

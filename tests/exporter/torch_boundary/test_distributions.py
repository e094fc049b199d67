"""Models that use `torch.distributions`, whose checks of arguments are branches on values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import opsetta

X = torch.tensor([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]])


class Scored(torch.nn.Module):
    def __init__(self, validate_args: bool | None = None):
        super().__init__()
        self.validate_args = validate_args

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normal = torch.distributions.Normal(x, scale.abs() + 1, validate_args=self.validate_args)
        chosen = torch.distributions.Categorical(logits=x, validate_args=self.validate_args)
        return normal.log_prob(scale), chosen.entropy()


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize(
    "dynamic_shapes", [None, {"x": {0: "n"}, "scale": {0: "n"}}], ids=["static", "dynamic"]
)
def test_checks_of_distributions_are_left_out(capture: str, dynamic_shapes: Any) -> None:
    before = torch.distributions.Distribution._validate_args
    program = opsetta.export(Scored(), (X, X + 1), opset=17, capture=capture, dynamic_shapes=dynamic_shapes)
    assert torch.distributions.Distribution._validate_args is before
    program.verify((X, X + 1))
    program.lower(9).verify((X, X - 1))
    if dynamic_shapes is not None:
        assert [each.restrictions for each in program.dimensions.values()] == [()]
        program.verify((X[:1], X[:1] + 1))


def test_a_check_that_the_model_asks_for_follows_the_example_in_direct_capture() -> None:
    program = opsetta.export(Scored(validate_args=True), (X, X + 1), opset=17)
    assert not program.specializations
    program.verify((X, X - 1))


def test_a_check_that_the_model_asks_for_is_a_branch_for_torch_export() -> None:
    with pytest.raises(opsetta.CaptureError, match=r"test_distributions\.py:\d+"):
        opsetta.export(Scored(validate_args=True), (X, X + 1), opset=17, capture="torch.export")

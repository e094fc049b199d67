"""Models that use `torch.distributions`, whose checks of arguments are branches on values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def checks_by_default() -> Iterator[None]:
    """`torch.compile` switches the checks off for the whole process, so another test may have done it."""
    torch.distributions.Distribution.set_default_validate_args(True)
    yield
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize(
    "dynamic_shapes", [None, {"x": {0: "n"}, "scale": {0: "n"}}], ids=["static", "dynamic"]
)
def test_checks_of_distributions_are_left_out(capture: str, dynamic_shapes: Any) -> None:
    program = opsetta.export(Scored(), (X, X + 1), opset=17, capture=capture, dynamic_shapes=dynamic_shapes)
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Normal(0.0, -1.0)
    program.verify((X, X + 1))
    program.lower(9).verify((X, X - 1))
    if dynamic_shapes is not None:
        assert [each.restrictions for each in program.dimensions.values()] == [()]
        program.verify((X[:1], X[:1] + 1))


def test_a_check_that_the_model_asks_for_follows_the_example_in_direct_capture() -> None:
    program = opsetta.export(Scored(validate_args=True), (X, X + 1), opset=17)
    assert not program.specializations
    program.verify((X, X - 1))


def test_a_check_that_the_model_asks_for_is_a_branch_or_an_assertion_for_torch_export() -> None:
    """torch.distributions checks by a branch on values; from torch 2.15 on an export gets an assertion."""
    model = Scored(validate_args=True)
    if _exports_assertions():
        program = opsetta.export(model, (X, X + 1), opset=17, capture="torch.export")
        assert not program.specializations
        program.verify((X, X - 1))
        program.lower(9).verify((X[:, :1].expand(2, 3), X))
    else:
        with pytest.raises(opsetta.CaptureError, match=r"test_distributions\.py:\d+"):
            opsetta.export(model, (X, X + 1), opset=17, capture="torch.export")


def _exports_assertions() -> bool:
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


@pytest.mark.parametrize("scale", [1.0, -1.0])
@pytest.mark.parametrize("validates", [True, False])
def test_the_default_for_checks_is_what_it_was_after_an_export(scale: float, validates: bool) -> None:
    torch.distributions.Distribution.set_default_validate_args(validates)
    opsetta.export(Scored(), (X, X + 1), opset=17)
    with pytest.raises(ValueError, match="scale") if validates and scale < 0 else contextlib.nullcontext():
        torch.distributions.Normal(0.0, scale)

"""Tensors that a call passes to the model's `**kwargs`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import opsetta


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: float | None = None, **kwargs: Any) -> torch.Tensor:
        return x * 2 + kwargs["bias"].sum(dim=1, keepdim=True) - kwargs["shift"]


def function(x: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
    return x - kwargs["bias"].sum() * kwargs["shift"]


def inputs(batch: int) -> dict[str, torch.Tensor]:
    return {"bias": torch.randn(batch, 3), "x": torch.randn(batch, 5), "shift": torch.randn(1)}


ENTRIES = {"x": {0: "batch"}, "bias": {0: "batch"}}
NESTED = {"x": {0: "batch"}, "kwargs": {"bias": {0: "batch"}, "shift": None}}


@pytest.mark.parametrize("capture", ["direct", "torch.export", "strict"])
@pytest.mark.parametrize("model", [Model().eval(), function], ids=["module", "function"])
@pytest.mark.parametrize("dynamic_shapes", [None, ENTRIES, NESTED], ids=["static", "entries", "nested"])
@pytest.mark.parametrize("order", [("x", "bias", "shift"), ("bias", "x", "shift")], ids=" ".join)
def test_members_are_inputs_by_their_names(
    capture: str, model: Any, dynamic_shapes: Any, order: tuple[str, ...]
) -> None:
    example = {name: inputs(2)[name] for name in order}
    program = opsetta.export(model, (), example, opset=17, capture=capture, dynamic_shapes=dynamic_shapes)
    assert program.input_names == list(order)
    program.verify((), example)
    if dynamic_shapes is not None:
        program.verify((), inputs(4))


def test_members_follow_positional_arguments() -> None:
    example = inputs(2)
    x = example.pop("x")
    program = opsetta.export(
        Model().eval(), (x,), example, dynamic_shapes=({0: "batch"}, {"bias": {0: "batch"}})
    )
    assert program.input_names == ["x", "bias", "shift"]
    torch.testing.assert_close(program(x, **example), Model()(x, **example))


@pytest.mark.parametrize("dynamic_shapes", [None, ENTRIES, NESTED], ids=["static", "entries", "nested"])
def test_a_trace_has_members_too(dynamic_shapes: Any) -> None:
    program = opsetta.export(
        Model().eval(), (), inputs(2), opset=17, capture="trace", dynamic_shapes=dynamic_shapes
    )
    program.verify((), inputs(2 if dynamic_shapes is None else 4))


class Variadic(nn.Module):
    def forward(
        self, x: torch.Tensor, /, *rest: torch.Tensor, scale: float = 2.0, **others: Any
    ) -> torch.Tensor:
        return x * scale + rest[0] - others["bias"]


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_members_follow_parameters_of_every_kind(capture: str) -> None:
    args = (torch.randn(2, 5), torch.randn(2, 1))
    kwargs = {"bias": torch.randn(5), "scale": 3.0}
    program = opsetta.export(Variadic().eval(), args, kwargs, capture=capture)
    program.verify((torch.randn(2, 5), torch.randn(2, 1)), {"bias": torch.randn(5), "scale": 3.0})


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_dynamic_axes_name_members(capture: str) -> None:
    program = opsetta.export(
        Model().eval(), (), inputs(2), capture=capture, dynamic_axes={"x": {0: "batch"}, "bias": {0: "batch"}}
    )
    program.verify((), inputs(3))


def test_the_model_keeps_its_forward() -> None:
    model = Model().eval()
    opsetta.export(model, (), inputs(2))
    assert "forward" not in vars(model)
    with pytest.raises(opsetta.CaptureError):
        opsetta.export(model, (), {"x": torch.randn(2, 5), "shift": torch.randn(1)})
    assert "forward" not in vars(model)


def test_an_entry_for_no_member_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="'bia'"):
        opsetta.export(Model().eval(), (), inputs(2), dynamic_shapes={"x": {0: "batch"}, "bia": {0: "batch"}})

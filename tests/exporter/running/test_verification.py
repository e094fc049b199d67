"""Parity reports, the error that names the worst element, and the search for the first wrong node."""

from __future__ import annotations

import contextlib
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.running.captured_calls import CapturedCalls
from opsetta.exporter.running.comparisons.verification import check, compare
from opsetta.registration import GraphContext, Value, default_registry


def wrong_registry() -> opsetta.Registry:
    """A tanh that is off by one."""
    registry = default_registry.fork()

    @opsetta.onnx_symbolic("aten::tanh", registry=registry)
    def tanh(g: GraphContext, self: Value) -> Value:
        return g.op("Add", g.op("Tanh", self), 1.0)

    return registry


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.middle = nn.Sequential(nn.ReLU(), nn.Tanh())
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict:
        hidden = self.middle(self.first(x))
        return {"hidden": hidden, "logits": self.last(hidden)}


def test_verify_names_the_worst_output_and_index() -> None:
    program = opsetta.export(Model().eval(), torch.randn(3, 4), registry=wrong_registry())
    with pytest.raises(
        opsetta.VerificationError, match=r"output '(hidden|logits)'.*index \[\d+, \d+\]"
    ) as caught:
        program.verify()
    assert caught.value.output in ("hidden", "logits")
    assert caught.value.error >= 0.9
    assert len(caught.value.index) == 2


def test_locate_mismatch_finds_the_node() -> None:
    program = opsetta.export(Model().eval(), torch.randn(3, 4), registry=wrong_registry())
    found = program.locate_mismatch((torch.randn(3, 4),))
    assert found is not None
    assert (found.operator, found.module) == ("aten::tanh.default", "middle.1")
    assert found.report.max_absolute_error == pytest.approx(1.0, abs=1e-3)
    assert "middle.1" in str(found)


def test_locate_mismatch_is_none_where_all_is_well() -> None:
    assert opsetta.export(Model().eval(), torch.randn(3, 4)).locate_mismatch() is None


def test_locate_mismatch_sees_values_before_they_are_overwritten() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y + 1
        y.add_(5)
        return y + z

    program = opsetta.export(forward, torch.randn(3))
    program.verify()
    assert program.locate_mismatch() is None


def test_verify_without_a_model_is_refused() -> None:
    program = opsetta.export(Model().eval(), torch.randn(3, 4))
    program._calls = CapturedCalls(dataclasses.replace(program._capture, module=None, exported=None))
    with pytest.raises(opsetta.OpsettaError, match="no PyTorch model"):
        program.verify()


@pytest.mark.parametrize(
    ("actual", "expected", "fine"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.1], [1.0, 2.0], False),
        ([math.nan, 1.0], [math.nan, 1.0], True),
        ([math.nan, 1.0], [0.0, 1.0], False),
        ([math.inf, 1.0], [math.inf, 1.0], True),
        ([math.inf, 1.0], [-math.inf, 1.0], False),
        ([1e30, 1.0], [math.inf, 1.0], False),
        ([0.0, 1.0], [math.nan, 1.0], False),
    ],
)
def test_compare_of_special_values(actual: list, expected: list, fine: bool) -> None:
    assert compare("y", torch.tensor(actual), torch.tensor(expected)).within_tolerance is fine


def test_compare_of_shapes_types_and_integers() -> None:
    assert not compare("y", torch.ones(2), torch.ones(3)).within_tolerance
    assert not compare("y", torch.ones(2), torch.ones(2).double()).within_tolerance
    assert compare("y", torch.ones(0, 3), torch.ones(0, 3)).within_tolerance
    assert not compare("y", torch.tensor([1, 2]), torch.tensor([1, 3])).within_tolerance
    assert compare("y", torch.tensor(True), torch.tensor(True)).within_tolerance


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ([[1.0], [2.0, 3.0]], None),
        ([[1.0], [2.0, 4.0]], r"at index \[1, 1\] onnxruntime gave 4.0, the original 3.0"),
        ([[1.0]], "onnxruntime gave 1 items, the original 2"),
    ],
)
def test_sequences_of_several_sizes_are_compared_item_by_item(actual: list, message: str | None) -> None:
    arrays, expected = ([np.array(item) for item in items] for items in (actual, [[1.0], [2.0, 3.0]]))
    with (
        contextlib.nullcontext()
        if message is None
        else pytest.raises(opsetta.VerificationError, match=message)
    ):
        check(["y"], [arrays], [expected], None, None, expected_by="the original")


def test_tolerances_may_be_given() -> None:
    program = opsetta.export(lambda x: torch.exp(x), torch.full((4,), 3.3))
    program.verify(rtol=1.0, atol=1.0)
    with pytest.raises(opsetta.VerificationError):
        opsetta.export(lambda x: torch.tanh(x), torch.ones(3), registry=wrong_registry()).verify(
            atol=0.5, rtol=0
        )


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return self.linear(x) * self.calls


def test_a_model_in_data_parallel_is_verified_and_not_changed() -> None:
    model = nn.DataParallel(Counter()).eval()
    program = opsetta.export(model, (torch.randn(4, 3),), opset=13, mutations="outputs")
    report = program.verify((torch.randn(4, 3),))
    assert [output.name for output in report.outputs] == ["output", "module.calls_mutated"]
    assert model.module.calls == 0

"""An export leaves submodules of every kind as they were, however it captures, and however it ends."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from tests.fuzz.submodule_programs import CAPTURES, ENDS, KINDS, WIDTH, script, trace, with_gradients

from .process_snapshot import changes, model_snapshot


def export(model: Any, args: tuple, **options: Any) -> opsetta.Program | None:
    """The program; None if the export was refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return opsetta.export(model, args, mutations="drop", **options)
        except opsetta.OpsettaError:
            return None


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_the_same_after_an_export(kind: str, sweep: bool) -> None:
    """Each kind with each capture, and each capture with each end; the fuzzer combines all.

    Quick runs take each kind with every second capture.
    """
    position = list(KINDS).index(kind)
    for number, capture in list(enumerate(CAPTURES, position))[:: 1 if sweep else 2]:
        end = list(ENDS)[number % 4]
        torch.manual_seed(0)
        model = with_gradients(ENDS[end](KINDS[kind]()))
        model.train(number % 3 == 0)
        args = (torch.randn(2, WIDTH),)
        shapes = ({0: "batch"},) if number % 2 == 0 else None
        before = model_snapshot(model, args)
        export(model, args, capture=capture, dynamic_shapes=shapes)
        assert changes(before, model_snapshot(model, args)) == [], (capture, end, shapes)


@pytest.mark.parametrize("kind", ["traced", "traced normalization", "traced beside its source"])
def test_a_model_with_a_traced_submodule_is_exported_saved_and_trained(kind: str) -> None:
    model = nn.Sequential(KINDS[kind](), nn.Linear(WIDTH, WIDTH)).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    program = export(model, (torch.randn(2, WIDTH),), dynamic_shapes=({0: "batch"},))
    assert program is not None
    for size in (1, 2, 7):
        x = torch.randn(size, WIDTH)
        torch.testing.assert_close(torch.as_tensor(program(x)), model(x).detach())
    torch.save(model.state_dict(), io.BytesIO())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model(torch.randn(4, WIDTH)).square().sum().backward()
    optimizer.step()
    assert not any(map(torch.equal, before, model.parameters()))


def test_a_traced_module_that_writes_to_its_buffers_keeps_them_after_an_interrupt() -> None:
    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trace(nn.BatchNorm1d(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            raise KeyboardInterrupt

    for capture in ("torch.export", "trace"):
        model, args = Interrupted(), (torch.randn(2, WIDTH),)
        before = model_snapshot(model, args)
        with pytest.raises(KeyboardInterrupt):
            export(model, args, capture=capture)
        assert changes(before, model_snapshot(model, args)) == [], capture


def test_the_training_flag_of_a_script_is_restored() -> None:
    class Switches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = script(nn.Dropout())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner.train()
            return x + 1

    for capture in CAPTURES:
        model = Switches().eval()
        export(model, (torch.randn(2, WIDTH),), capture=capture)
        assert not model.inner.training, capture

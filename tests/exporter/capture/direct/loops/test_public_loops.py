"""Loops in the style of public code are right at every length, or are refused with their line."""

from __future__ import annotations

import pytest
import torch

import opsetta

from .....opsets import HIGHEST
from .public_models import PUBLIC, REFUSED, WhileSteps, WindowedAudio

SHORTEST = {WindowedAudio: 3, WhileSteps: 2}
"""The shortest sequence of the models that do not take one step."""


def _export(model: type[torch.nn.Module], opset: int, **options: object) -> opsetta.Program:
    dynamic = ({0: "batch", 1: "time"},)
    example = (torch.randn(2, 7, 4),)
    return opsetta.export(model().eval(), example, opset=opset, dynamic_shapes=dynamic, **options)


@pytest.mark.filterwarnings("ignore:the export is valid for")
@pytest.mark.parametrize("model", PUBLIC)
def test_three_lengths_agree_with_eager(model: type[torch.nn.Module]) -> None:
    program = _export(model, 13)
    for lowered in (program, program.lower(HIGHEST)):
        for time in (SHORTEST.get(model, 1), 5, 12):
            torch.manual_seed(time)
            lowered.verify((torch.randn(3, time, 4),))


@pytest.mark.parametrize("model", REFUSED)
def test_other_loops_are_refused_with_their_line(model: type[torch.nn.Module]) -> None:
    with pytest.raises(opsetta.CaptureError, match=REFUSED[model]) as refusal:
        _export(model, 13, capture="direct")
    assert "public_models.py" in str(refusal.value)

"""Lowering, saving and conversion cost a number of calls that is linear in the number of nodes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsetta
from tests.call_counts import count_calls


def chain(length: int) -> opsetta.Program:
    """Shapes, views, writes in place and promotion, over and over; the sizes are dynamic."""

    def steps(x: Tensor) -> Tensor:
        for _ in range(length):
            y = x.reshape(x.shape[0], -1).transpose(0, 1) + 1
            y[0] = 2
            x = torch.nn.functional.softmax(y, dim=-1).transpose(0, 1)
        return x

    return opsetta.export(steps, (torch.randn(3, 4),), opset=18, dynamic_shapes=({0: "n"},))


def _saved(program: opsetta.Program) -> None:
    program.save(io.BytesIO())
    program.save_source(io.BytesIO())


def _converted(program: opsetta.Program) -> None:
    opsetta.OnnxModel(program.model).lower(opset=11)


WORK: dict[str, Callable[[opsetta.Program], Any]] = {
    "lowering": lambda program: program.lower(opset=9),
    "saving": _saved,
    "conversion": _converted,
}


@pytest.fixture(scope="module")
def chains() -> tuple[opsetta.Program, opsetta.Program]:
    return chain(15), chain(60)


@pytest.mark.parametrize("work", WORK)
def test_four_times_the_nodes_cost_four_times_the_calls(
    work: str, chains: tuple[opsetta.Program, opsetta.Program]
) -> None:
    for program in chains:
        WORK[work](program)  # Caches of schemas and signatures are filled once.
    small, large = (count_calls(lambda program=program: WORK[work](program)) for program in chains)
    assert large < 4.4 * small

"""Reshapes for which it matters whether they copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from opsetta.exporter.capture.sizes.trials.written_values import WrittenValues


def written_before(x: torch.Tensor) -> torch.Tensor:
    return x.neg().relu_().reshape(-1)


def base_written_after(x: torch.Tensor) -> torch.Tensor:
    base = x.neg()
    flat = base.reshape(-1)
    base.relu_()
    return flat


def result_written_after(x: torch.Tensor) -> torch.Tensor:
    base = x.neg()
    base.reshape(-1).relu_()
    return base


def base_written_after_last_use(x: torch.Tensor) -> torch.Tensor:
    base = x.neg()
    total = base.reshape(-1)[1:].sum()
    return base.relu_() + total


def base_written_before_use_of_a_view(x: torch.Tensor) -> torch.Tensor:
    base = x.neg()
    view = base.reshape(-1)[1:]
    base.relu_()
    return view.sum() + base


def other_written_after(x: torch.Tensor) -> torch.Tensor:
    flat = x.neg().reshape(-1)
    return flat + x.abs().relu_().sum()


def idle_dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.neg().reshape(-1), 0.5, training=False, inplace=True) + x.abs().relu_().sum()


def active_dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.neg().reshape(-1), 0.5, training=True, inplace=True)


@pytest.mark.parametrize(
    ("model", "matters"),
    [
        (written_before, False),
        (base_written_after, True),
        (result_written_after, True),
        (base_written_after_last_use, False),
        (base_written_before_use_of_a_view, True),
        (other_written_after, False),
        (idle_dropout, False),
        (active_dropout, True),
    ],
)
def test_a_copy_matters_if_its_memory_is_written_later(
    model: Callable[[torch.Tensor], torch.Tensor], matters: bool
) -> None:
    module = torch.nn.Module()
    module.forward = model  # type: ignore[method-assign]
    graph = torch.export.export(module, (torch.ones(2, 3),)).graph
    assert bool(WrittenValues(graph).copies) == matters


def test_a_write_to_one_input_does_not_matter_for_a_copy_of_another() -> None:
    module = torch.nn.Module()
    module.forward = lambda x, y: y.relu_() + x[:1].contiguous()  # type: ignore[method-assign]
    program = torch.export.export(module, (torch.ones(2, 3), torch.ones(2, 3)))
    values = WrittenValues(program.graph, program.graph_signature.user_inputs)
    assert not values.copies
    assert {node.name for node in values.tensors} == {"y", "relu_"}

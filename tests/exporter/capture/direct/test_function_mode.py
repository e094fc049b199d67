"""The mode that handles functions: those that it calls at once are those that torch's modes leave alone."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.distributed._functional_collectives import traceable_collective_remaps
from torch.fx.experimental import proxy_tensor

import opsetta
from opsetta.exporter.torch_boundary.recording.function_mode import is_unchanged

CHANGED = [
    *proxy_tensor._side_effectful_need_to_be_preserved_pre_dispatch,
    # torch 2.10 has none of these.
    *getattr(proxy_tensor, "_jvp_predispatch_functions", ()),
    *traceable_collective_remaps,
    *(item for item in vars(torch._functorch.predispatch).values() if isinstance(item, types.FunctionType)),
    torch.tensor,
    torch.equal,
    torch.narrow,
    torch.Tensor.narrow,
    torch.Tensor.__getitem__,
]


def test_functions_that_torch_changes_go_through_its_modes() -> None:
    assert [func for func in CHANGED if is_unchanged(func)] == []


@pytest.mark.parametrize("func", [torch.relu, F.linear, F.layer_norm, F.batch_norm, torch.conv2d])
def test_functions_that_only_call_operators_are_called_at_once(func: object) -> None:
    assert is_unchanged(func)


NARROWED = {
    "function": lambda x, start: torch.narrow(x, 0, start, 2),
    "method": lambda x, start: x.narrow(dim=0, start=start, length=2),
    "number": lambda x, start: x.narrow(0, 1, 2) + start,
}


@pytest.mark.parametrize("name", NARROWED)
@pytest.mark.parametrize("opset", [9, 13])
def test_narrow_reads_its_start(name: str, opset: int) -> None:
    program = opsetta.export(NARROWED[name], (torch.randn(5, 3), torch.tensor(1)), opset=opset)
    for start in (0, 3, -2):
        program.verify((torch.randn(5, 3), torch.tensor(start)))


def selected(x: torch.Tensor) -> torch.Tensor:
    return x[x.sum() > 0]


def written(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x.sum() > 0] = 1.5
    return x


def ratio(x: torch.Tensor) -> torch.Tensor:
    """A score as packages of metrics compute it."""
    score, total = x.mean().clone(), x.std()
    valid = x.sum() > 0
    score[valid] = 1 - score[valid] / total[valid]
    score[~valid] /= total[~valid]
    return score


@pytest.mark.parametrize("model", [selected, written, ratio])
@pytest.mark.parametrize("opset", [9, 11, 17])
def test_a_single_truth_value_is_an_index(model: Callable[[torch.Tensor], torch.Tensor], opset: int) -> None:
    program = opsetta.export(model, (torch.rand(4, 6),), opset=opset, dynamic_shapes=({0: "rows"},))
    for rows, sign in ((4, 1), (4, -1), (7, 1), (7, -1)):
        program.verify((torch.rand(rows, 6) * sign,))

"""The mode that handles functions: those that it calls at once are those that torch's modes leave alone."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F
from torch.distributed._functional_collectives import traceable_collective_remaps
from torch.fx.experimental import proxy_tensor

from opsetta.exporter.torch_boundary.recording.function_mode import is_unchanged

CHANGED = [
    *proxy_tensor._side_effectful_need_to_be_preserved_pre_dispatch,
    *proxy_tensor._jvp_predispatch_functions,
    *traceable_collective_remaps,
    *(item for item in vars(torch._functorch.predispatch).values() if isinstance(item, types.FunctionType)),
    torch.tensor,
    torch.equal,
    torch.Tensor.__getitem__,
]


def test_functions_that_torch_changes_go_through_its_modes() -> None:
    assert [func for func in CHANGED if is_unchanged(func)] == []


@pytest.mark.parametrize("func", [torch.relu, F.linear, F.layer_norm, F.batch_norm, torch.conv2d])
def test_functions_that_only_call_operators_are_called_at_once(func: object) -> None:
    assert is_unchanged(func)

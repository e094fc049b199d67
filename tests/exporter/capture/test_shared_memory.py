"""A write to a result that may share memory with an argument: exported programs and eager agree on both."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opsetta

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "adjoint": lambda a: a.adjoint(),
    "as_tensor": torch.as_tensor,
    "atleast_3d": torch.atleast_3d,
    "cat": lambda a: torch.cat([a]),
    "chunk": lambda a: a.chunk(1)[0],
    "clone": lambda a: a.clone(),
    "complex": lambda a: torch.view_as_complex(a.contiguous().view(a.shape[0], 2, 2)).imag,
    "conj": lambda a: a.conj(),
    "contiguous": lambda a: a.contiguous(),
    "cpu": lambda a: a.cpu(),
    "detach": lambda a: a.detach(),
    "diagonal": lambda a: a.diagonal(1),
    "dropout in evaluation": lambda a: F.dropout(a, 0.5, training=False),
    "dropout of nothing": lambda a: F.dropout(a, 0.0, training=True),
    "feature_dropout": lambda a: F.dropout1d(a, 0.5, training=False),
    "flatten": lambda a: a.flatten(),
    "flip": lambda a: a.flip(0),
    "float": lambda a: a.float(),
    "hsplit": lambda a: a.hsplit(2)[1],
    "identity": nn.Identity(),
    "index": lambda a: a[[0]],
    "mask": lambda a: a[:, torch.tensor([True, False, True, False])],
    "linalg.diagonal": torch.linalg.diagonal,
    "movedim": lambda a: a.movedim(0, 1),
    "narrow": lambda a: a.narrow(0, 0, 1),
    "none": lambda a: a[None, :, 1:2],
    "pad": lambda a: F.pad(a, (0, 0)),
    "positive": torch.positive,
    "ravel": lambda a: a.ravel(),
    "real": lambda a: a.real,
    "relu6": lambda a: F.relu6(a, inplace=True),
    "repeat": lambda a: a.repeat(1, 1),
    "reshape": lambda a: a.reshape(-1),
    "reshape_as": lambda a: a.reshape_as(torch.ones(2 * a.shape[0], 2)),
    "roll": lambda a: a.roll(0),
    "select": lambda a: a[-1],
    "slice": lambda a: a[:, ::2],
    "split": lambda a: a.split(2, 1)[1],
    "squeeze": lambda a: a.squeeze(),
    "squeeze_": lambda a: a[:, :1].squeeze_(1),
    "t_": lambda a: a.view(a.shape).t_(),
    "to": lambda a: a.to(torch.float32),
    "transpose": lambda a: a.t()[1:3],
    "type_as": lambda a: a.type_as(a),
    "unbind": lambda a: a.unbind(1)[1],
    "unflatten": lambda a: a.unflatten(1, (2, 2)),
    "view_as": lambda a: a.view_as(a),
    "whole": lambda a: a[...],
}
REFUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "as_strided": lambda a: a.as_strided((2, 2), (2, 1), 1),
    "cartesian_prod": lambda a: torch.cartesian_prod(a[:, 0]),
    "einsum": lambda a: torch.einsum("ij->ji", a),
    "expand": lambda a: a[None].expand(2, -1, -1),
    "sum_to_size": lambda a: a.sum_to_size(*a.shape),
    "unfold": lambda a: a.unfold(1, 2, 1),
    "view of another type": lambda a: a.view(torch.int32),
}


class Written(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor], is_transposed: bool) -> None:
        super().__init__()
        self.function = function
        self.is_transposed = is_transposed

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = (x.t().contiguous() * 2).t() if self.is_transposed else x * 2
        result = self.function(before)
        result.add_(1)
        return before * 3, result * 5


CASES = [(name, capture) for name in FUNCTIONS for capture in ("direct", "torch.export")]


@pytest.mark.parametrize("is_transposed", [True, pytest.param(False, marks=pytest.mark.sweep)])
@pytest.mark.parametrize(
    ("name", "capture"),
    [
        # Quick runs take each function with one capture only, in turn.
        pytest.param(name, capture, marks=[] if index % 4 in (0, 3) else [pytest.mark.sweep])
        for index, (name, capture) in enumerate(CASES)
    ],
)
def test_the_program_agrees_on_what_shares_memory(name: str, capture: str, is_transposed: bool) -> None:
    model = Written(FUNCTIONS[name], is_transposed).eval()
    with warnings.catch_warnings():
        # For one row, what copies otherwise may share memory.
        warnings.filterwarnings("ignore", message="the export is valid for")
        program = opsetta.export(
            model, (torch.randn(4, 4),), opset=17, capture=capture, dynamic_shapes=({0: "n"},)
        )
    for size in (4, 1, 3):
        with contextlib.suppress(opsetta.DimensionError):
            program.verify((torch.randn(size, 4),))
    assert program.dimensions["n"].minimum <= 2


@pytest.mark.parametrize("name", ["contiguous", "flatten", "ravel", "reshape", "reshape_as"])
def test_a_trace_refuses_a_write_where_sizes_decide_what_shares_memory(name: str) -> None:
    options = {"opset": 17, "capture": "trace", "dynamic_shapes": ({0: "n"},)}
    opsetta.export(Written(FUNCTIONS[name], False).eval(), (torch.randn(4, 4),), **options).verify()
    with pytest.raises(opsetta.GraphError, match="unknown whether this shares memory"):
        opsetta.export(Written(FUNCTIONS[name], True).eval(), (torch.randn(4, 4),), **options)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(name: str) -> None:
    with pytest.raises(opsetta.GraphError, match="writes to this view|shares memory|share memory"):
        opsetta.export(Written(REFUSED[name], False).eval(), (torch.randn(4, 4),), opset=17)

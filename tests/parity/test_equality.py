"""Comparisons of whole tensors, which TorchScript keeps: their results are Python's true and false."""

import torch
from torch import Tensor

from ..opsets import HIGHEST
from .records import floats
from .test_torchscript_operators import Scripted, check, parametrized, scripted


def equal(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if torch.equal(x, y) else x - 1


def of_other_rank(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if torch.equal(x, y[0]) else x - 1


def close(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if torch.allclose(x, y, 1e-3, 1e-4) else x - 1


def close_with_nan(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if torch.allclose(x, y, equal_nan=True) else x - 1


def of_one_size(x: Tensor, y: Tensor) -> Tensor:
    return x + 1 if x.is_same_size(y) else x - 1


_X = floats(3, 4)
_NAN = _X.masked_fill(_X > 1, torch.nan)
_FREE = {"x": {0: "n"}, "y": {0: "m"}}
_OPSETS = (7, 8, 9, 11, 13, HIGHEST)
_CALLS = ((_X, _X.clone()), (_X, _X + (_X > 1)), (_NAN, _NAN.clone()), (_X, _X * 1.0001))
_SIZES = (*_CALLS, (_X, _X[:2]), (_X[:0], _X[:0]))

RECORDS = [
    Scripted("equal", scripted(equal), _CALLS, _OPSETS),
    Scripted("equal-dynamic", scripted(equal), _SIZES, _OPSETS, _FREE),
    Scripted("equal-of-other-rank", scripted(of_other_rank), _CALLS, _OPSETS),
    Scripted("allclose", scripted(close), _CALLS, _OPSETS),
    Scripted("allclose-broadcast", scripted(close), ((_X, _X[:1]), (_X[:1].expand(3, 4), _X[:1])), _OPSETS),
    Scripted("allclose-nan", scripted(close_with_nan), _CALLS, _OPSETS),
    Scripted("is_same_size", scripted(of_one_size), _CALLS, _OPSETS),
    Scripted("is_same_size-dynamic", scripted(of_one_size), _SIZES, _OPSETS, _FREE),
]


@parametrized(RECORDS)
def test_agrees_with_the_script(record: Scripted) -> None:
    check(record)

"""Unique elements, counts, running extremes and order statistics against eager PyTorch."""

import math

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, integers, parametrized

OPSETS = (7, 9, 11, HIGHEST)
I = integers(4, 5, low=-2, high=3)  # noqa: E741
ROWS = torch.tensor([[1, 2], [0, 3], [1, 2], [0, 1], [0, 3]])
X = floats(3, 5)
NAN = torch.tensor([[1.0, math.nan, 3.0, 3.0], [math.nan] * 4, [2.0, -1.0, 5.0, 2.0]])


def _all(x: torch.Tensor, **options) -> tuple[torch.Tensor, ...]:
    return torch.unique(x, return_inverse=True, return_counts=True, **options)


def _neighbours(x: torch.Tensor, **options) -> tuple[torch.Tensor, ...]:
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True, **options)


UNIQUE = [
    Record(f"unique of {x.dtype}", _all, (x,), OPSETS)
    for x in (I, I.float(), I.int(), I.double(), I > 0, (I + 2).byte())
]
UNIQUE += [
    Record("unique of half", _all, (I.half(),), (9, 11, HIGHEST)),
    Record("unique alone", torch.unique, (I,), OPSETS),
    Record("unique of one", _all, (torch.tensor(3.0),), OPSETS),
    Record("unique rows", lambda x: _all(x, dim=0), (ROWS,), OPSETS),
    Record("unique columns", lambda x: _all(x, dim=1), (ROWS.t().float().contiguous(),), OPSETS),
    Record("unique dynamic", _all, (I,), (9, 11, HIGHEST), dynamic=({0: "n", 1: "m"},)),
    Record("unique_consecutive", _neighbours, (torch.tensor([1, 1, 2, 1, 3, 3, 3]),), OPSETS),
    Record("unique_consecutive of floats", _neighbours, (I.float(),), OPSETS),
    Record("unique_consecutive dim", lambda x: _neighbours(x, dim=0), (ROWS[[0, 2, 1, 4, 3]],), OPSETS),
]

ORDER = [
    Record(f"{name} of {x.dtype}", lambda x, f=function: f(x, 1), (x,), (7, 9, HIGHEST))
    for name, function in (("cummax", torch.cummax), ("cummin", torch.cummin))
    for x in (X, NAN, I, I > 0)
]
ORDER += [
    Record("cummax dynamic", lambda x: torch.cummax(x, 0), (X,), (11, HIGHEST), dynamic=({0: "n"},)),
    Record("mode", lambda x: torch.mode(x, 1), (I,), OPSETS),
    Record("mode keepdim", lambda x: torch.mode(x, 0, True), (I.float(),), OPSETS),
    Record("mode of bool", lambda x: torch.mode(x), (I > 0,), OPSETS),
    Record("nanmedian", torch.nanmedian, (NAN,), (9, 11, HIGHEST)),
    Record("nanmedian dim", lambda x: torch.nanmedian(x[::2], 1, True).values, (NAN,), (9, 11, HIGHEST)),
    Record("nanmedian of nothing", lambda x: torch.nanmedian(x, 1).values, (NAN,), (9, 11, HIGHEST)),
]
ORDER += [
    Record(
        f"{name} {interpolation}",
        lambda x, q, f=function, i=interpolation: (f(x, q, 1, interpolation=i), f(x, q[1], interpolation=i)),
        (X if name == "quantile" else NAN, torch.tensor([0.0, 0.3, 0.5, 1.0])),
        (9, HIGHEST),
    )
    for name, function in (("quantile", torch.quantile), ("nanquantile", torch.nanquantile))
    for interpolation in ("linear", "lower", "higher", "midpoint", "nearest")
]
ORDER += [
    Record(
        "quantile keepdim",
        lambda x, q: (torch.quantile(x, q, 0, True), torch.quantile(x, q, keepdim=True)),
        (X, torch.tensor([0.2, 0.9])),
        (9, HIGHEST),
    ),
    Record("quantile of NaN", lambda x, q: torch.quantile(x, q, 1), (NAN, torch.tensor(0.5)), (9, HIGHEST)),
]

POINTS = floats(40, 2, seed=5)
COUNTS = [
    Record("histc", lambda x: torch.histc(x, 5), (POINTS,), (9, HIGHEST)),
    Record("histc between", lambda x: torch.histc(x, 4, -1, 1.5), (POINTS,), (9, HIGHEST)),
    Record("histc of equal", lambda x: torch.histc(x * 0 + 2, 4), (POINTS,), (9, HIGHEST)),
    Record("histc of many", lambda x: torch.histc(x, 70, -1, 1), (POINTS,), (9, HIGHEST)),
    Record(
        "histc of whole numbers",
        lambda i: (
            torch.histc(i.float(), 4, 0, 3),
            torch.histc(i.double(), 3, 2, 4),
            torch.histc(i.float(), 3, 0, 3),
            torch.histc((i % 3).float() - 1, 2, 0, 1),
        ),
        (torch.tensor([[0, 3, 3, -1], [4, 1, 70, 3]]),),
        (7, 9, 11, HIGHEST),
    ),
    Record("histogram", lambda x: torch.histogram(x, 5), (POINTS,), (9, HIGHEST)),
    Record(
        "histogram weighted",
        lambda x, w: torch.histogram(x, 5, range=(-1.0, 1.0), weight=w, density=True),
        (POINTS, floats(40, 2, seed=6).abs()),
        (9, HIGHEST),
    ),
    Record(
        "histogram between edges",
        lambda x, e: torch.histogram(x, e),
        (POINTS, torch.tensor([-1.0, -0.5, 0.0, 2.0])),
        (9, HIGHEST),
    ),
    Record("histogramdd", lambda x: torch.histogramdd(x, [3, 2]), (POINTS,), (9, HIGHEST)),
    Record(
        "histogramdd density",
        lambda x: torch.histogramdd(x, [3, 2], range=[-1.0, 1.0, 0.0, 2.0], density=True),
        (POINTS,),
        (9, HIGHEST),
    ),
]

MASKS = [
    Record(
        "masked_scatter",
        lambda x, m, s: x.masked_scatter(m, s),
        (X, X > 0, floats(20, seed=3)),
        (7, 9, 11, HIGHEST),
    ),
    Record(
        "masked_scatter broadcast",
        lambda x, m, s: x.masked_scatter(m, s),
        (X, torch.tensor([True, False, True, True, False]), floats(9, seed=3)),
        (7, 9, 11, HIGHEST),
    ),
    Record("nonzero", torch.nonzero, (I,), (7, 9, HIGHEST)),
    Record("masked_select", lambda x: x[x > 0], (X,), (7, 9, HIGHEST)),
    Record(
        "nonzero_static",
        lambda x: (torch.nonzero_static(x, size=30), torch.nonzero_static(x, size=3, fill_value=7)),
        (I,),
        (7, 9, HIGHEST),
    ),
    Record(
        "repeat_interleave by each",
        lambda x, n: x.repeat_interleave(n, dim=0),
        (X, torch.tensor([2, 0, 3])),
        (7, 9, HIGHEST),
    ),
    Record(
        "repeat_interleave of positions", torch.repeat_interleave, (torch.tensor([2, 0, 3]),), (7, 9, HIGHEST)
    ),
    Record(
        "tensor_split at computed places",
        lambda x: torch.tensor_split(x, torch.tensor([1, 3]), 1),
        (X,),
        (9, HIGHEST),
    ),
    Record("diff of order 0", lambda x, p: torch.diff(x, 0, prepend=p), (X, X[:, :2]), (9, HIGHEST)),
    Record("one_hot of a number", lambda x: torch.nn.functional.one_hot(x, 4), (torch.tensor(2),), (9, 11)),
    Record(
        "as_strided", lambda x: (x.as_strided((2, 3), (5, 2), 1), x.as_strided((3, 3), (1, 1))), (X,), OPSETS
    ),
    Record(
        "as_strided_scatter",
        lambda x, s: torch.as_strided_scatter(x, s, (2, 3), (5, 1), 2),
        (X, floats(2, 3)),
        OPSETS,
    ),
]


@parametrized([*UNIQUE, *ORDER, *COUNTS, *MASKS])
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def test_strides_over_another_storage_are_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[1:].as_strided((2, 2), (2, 1), 0)

    with pytest.raises(opsetta.CaptureError, match="storage"):
        opsetta.export(Model().eval(), (X,), opset=13)


def test_a_dimension_that_the_tensor_does_not_have_is_refused() -> None:
    """PyTorch does not check the dimension of empty tensors here."""
    with pytest.raises(
        opsetta.UnsupportedOperatorsError, match="axis 2 is outside of a tensor with 2 dimensions"
    ):
        opsetta.export(lambda x: x.cummin(2), torch.ones(3, 0), opset=13, dynamic_shapes=({0: "n"},))

"""NaN, infinity, signs of zero, wrapping integers and empty tensors against eager PyTorch."""

import math

import torch
import torch.nn.functional as F

from .records import EVERYWHERE, HIGHEST, Record, check, floats, integers, parametrized
from .resized import Resized, check_sizes

INF, NAN = math.inf, math.nan
LARGE = integers(3, 5, low=-(2**40), high=2**40)
BYTES = torch.arange(235, 250, dtype=torch.uint8).reshape(3, 5)
NUMBERS = torch.tensor([1.5, -1.5, 0.0, -0.0, 4.0, -4.0, INF, -INF, NAN, 6.0, 1e5, -3.0])
DIVISORS = torch.tensor([INF, -INF, 2.0, -2.0, NAN, 3.0, -3.0, 0.0])


def _with(x: torch.Tensor, value: float, *places: tuple[int, ...]) -> torch.Tensor:
    """A copy with one value in some places."""
    x = x.clone()
    for place in places:
        x[place] = value
    return x


def _signed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and its reciprocal, which shows the signs of zeros."""
    return x, torch.reciprocal(x)


def _products(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.prod(), x.prod(1), x.prod(0, keepdim=True), x.prod(1, dtype=torch.int8), x[0, 0].prod(0)


def _medians(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.median(), *x.median(0), x.nanmedian(), *x.median(1, keepdim=True)


def _medians_of_all(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.median(), x.nanmedian()


def _remainders(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = (
        torch.remainder(x, y),
        torch.fmod(x, y),
        x % 2.0,
        torch.fmod(x, -3.0),
        x % INF,
        torch.fmod(x, -INF),
    )
    return tuple(part for item in found for part in _signed(item))


def _averages(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = ((4, 5), (3, 7), (1, 4), (7, 2), (10, 12))
    return *(F.adaptive_avg_pool2d(x, size) for size in sizes), F.interpolate(x, size=(4, 5), mode="area")


IMAGES = _with(_with(floats(2, 3, 7, 9), INF, (0, 0, 2, 2)), NAN, (1, 1, 6, 8))
OPSETS = (7, 9, 10, 13, HIGHEST)
RECORDS = [
    Record("prod of large int64", _products, (LARGE,), EVERYWHERE),
    Record("prod of uint8", _products, (BYTES,), EVERYWHERE),
    Record("prod of int32", _products, (LARGE.int(),), (9, HIGHEST)),
    Record("prod of few", lambda x: (x.prod(0), x.bool().prod(1), x[:0].prod(0)), (BYTES,), EVERYWHERE),
    *(
        Record(f"median of {n}", _medians, (_with(floats(n, 3), NAN, (n // 2, 1), (n - 1, 1)),), OPSETS)
        for n in (1, 2, 5, 8, 16, 33)
    ),
    *(
        Record(f"median of no {dtype}", _medians_of_all, (torch.zeros(0, 3, dtype=dtype),), OPSETS)
        for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.int16, torch.bool)
    ),
    *(
        Record(
            f"log_softmax of {dtype}",
            lambda x: (F.log_softmax(x, 1), F.softmax(x, 1), F.log_softmax(x, 0)),
            (_with(floats(6, 4), NAN, (0, 0), (1, 2), (2, 3)).index_fill(0, torch.tensor(4), INF).to(dtype),),
            OPSETS,
        )
        for dtype in (torch.float32, torch.float64)
    ),
    Record(
        "log_softmax beside infinity",
        lambda x: F.log_softmax(x, -1),
        (_with(_with(floats(3, 4).double(), INF, (0, 1)), -INF, (1, 2)),),
        OPSETS,
    ),
    Record("median of no rows", lambda x: x.median(1), (torch.zeros(0, 3),), OPSETS),
    Record(
        "remainder",
        _remainders,
        (NUMBERS.repeat_interleave(len(DIVISORS)), DIVISORS.repeat(len(NUMBERS))),
        OPSETS,
    ),
    *(
        Record(f"averages of {dtype} with NaN", _averages, (IMAGES.to(dtype),), OPSETS)
        for dtype in (torch.float32, torch.float16)
    ),
    # onnxruntime has no AveragePool of DOUBLE, which regular windows become.
    Record("averages of double", lambda x: F.adaptive_avg_pool2d(x, (4, 5)), (IMAGES.double(),), OPSETS),
    Record("adaptive_avg_pool3d of NaN", lambda x: F.adaptive_avg_pool3d(x, (2, 5, 2)), (IMAGES,), OPSETS),
    *(
        Record(
            f"{mode} to {size} {align}",
            lambda x, s=size, m=mode, a=align: F.interpolate(x, size=s, mode=m, align_corners=a),
            (IMAGES,),
            (7, 9, 10),
        )
        for mode in ("bilinear", "bicubic")
        for size, align in (((4, 5), False), ((14, 18), False), ((4, 5), True), ((7 // 2, 3), False))
    ),
    Record(
        "scatter of nothing",
        lambda x: x.scatter(-1, torch.zeros(0, 4, dtype=torch.int64), 1.0),
        (floats(2, 3, 4),),
        (7, 9, HIGHEST),
    ),
    *(
        Record(
            f"bucketize right {right}",
            lambda x, r=right: torch.bucketize(x, torch.tensor([-1.0, 0.5, 2.0]), right=r),
            (NUMBERS,),
            (7, 9, 13, HIGHEST),
        )
        for right in (False, True)
    ),
    Record("vector_norm of double", lambda x: torch.linalg.vector_norm(x, 3, 0), (LARGE.double(),), OPSETS),
    Record("pow of double", lambda x: x.abs() ** (1 / 3), (LARGE.double(),), OPSETS),
]  # fmt: skip


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


RESIZED = [
    Resized(
        f"prod of {x.dtype}",
        _products,
        (x,),
        (7, 9, HIGHEST),
        dynamic=({0: "n"},),
        others=((x[:1],), (x[:2],), (x.repeat(8, 1)[:23],)),
    )
    for x in (LARGE, BYTES)
]
RESIZED += [
    Resized(
        f"median of {dtype}",
        _medians_of_all,
        (_with(floats(5, 3), 9.0, (1, 1)).abs().to(dtype),),
        (9, 11, HIGHEST),
        dynamic=({0: "n"},),
        others=((torch.zeros(0, 3, dtype=dtype),), (floats(1, 3).abs().to(dtype),)),
    )
    for dtype in (torch.float32, torch.int64, torch.uint8)
]
RESIZED += [
    Resized(
        "averages",
        _averages,
        (IMAGES,),
        (7, 9, HIGHEST),
        dynamic=({2: "h", 3: "w"},),
        others=((_with(floats(2, 3, 11, 4), INF, (1, 2, 10, 0)),),),
    ),
    Resized(
        "bilinear",
        lambda x: F.interpolate(x, size=(4, 5), mode="bilinear"),
        (IMAGES,),
        (9, 10),
        dynamic=({2: "h", 3: "w"},),
        others=((_with(floats(2, 3, 11, 4), INF, (1, 2, 10, 0)),),),
    ),
]


@parametrized(RESIZED)
def test_other_sizes_agree_with_eager(record: Record) -> None:
    check_sizes(record)


def _normalized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    layer = F.layer_norm(F.layer_norm(x, (0,)), (0,), torch.ones(0), torch.ones(0))
    root = F.rms_norm(F.rms_norm(x, (0,), eps=1e-5), (0,), torch.ones(0))
    group = F.group_norm(F.group_norm(x, 2), 2, torch.ones(4))
    return layer, root, group, *torch.native_layer_norm(x, (0,), None, None, 1e-5), F.instance_norm(x)


EMPTY = [
    Resized(
        "normalizations over nothing",
        _normalized,
        (torch.zeros(3, 4, 0),),
        (7, 9, 13, 17, 18, 21, 23, HIGHEST),
        dynamic=({0: "n"},),
        others=((torch.zeros(5, 4, 0),),),
    )
]


@parametrized(EMPTY)
def test_nothing_is_normalized(record: Record) -> None:
    check_sizes(record)

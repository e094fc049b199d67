"""Pooling against eager PyTorch: ceil mode, padding counted or not, indices, adaptive sizes."""

import onnx
import pytest
import torch
import torch.nn.functional as F

import opsetta

from .records import HIGHEST, Record, check, floats, integers, parametrized
from .resized import Resized, check_sizes

INF = float("inf")
OPSETS = (7, 9, 10, 11, 13, 19, 22, HIGHEST)
SIZES = {1: (11,), 2: (11, 9), 3: (7, 6, 5)}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_AVERAGE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
WINDOW_OPSETS = (7, 10, 19, HIGHEST)

# Kernel, stride, padding: with a last window of every kind (whole, cut, in the padding, dropped).
WINDOWS = [(3, 2, 0), (2, 2, 0), (3, 2, 1), (2, 3, 0), (2, 3, 1), (3, 4, 1), (3, 5, 1), (2, 4, 1)]


def _reached(opsets: tuple[int, ...], refused: dict[int, str]) -> tuple[int, ...]:
    return tuple(opset for opset in opsets if opset not in refused)


def _record(name: str, function, *inputs: torch.Tensor, refused=None, opsets=OPSETS, **options) -> Record:
    refused = refused or {}
    return Record(name, function, inputs, _reached(opsets, refused), refused, **options)


def _windows(dimensions: int) -> list[Record]:
    batch = floats(2, 3, *SIZES[dimensions])
    free = ({0: "batch", **{axis + 2: f"size{axis}" for axis in range(dimensions)}},)
    maximum, average, result = MAX[dimensions], AVERAGE[dimensions], []
    for kernel, stride, padding in WINDOWS if dimensions == 2 else WINDOWS[2:6:2]:
        name = f"{dimensions}d-{kernel}-{stride}-{padding}"
        for ceil in (False, True):
            mode = f"{name}-ceil" if ceil else name
            options = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil}
            result.append(
                _record(f"max_pool{mode}", lambda x, o=options: maximum(x, **o), batch, opsets=WINDOW_OPSETS)
            )
            for counted in (True, False):
                both = {**options, "count_include_pad": counted}
                counts = f"{mode}{'-counted' if counted else ''}"
                result.append(
                    _record(
                        f"avg_pool{counts}", lambda x, o=both: average(x, **o), batch, opsets=WINDOW_OPSETS
                    )
                )
    options = {"kernel_size": 3, "stride": 2, "padding": 1}
    result += [
        _record(f"max_pool{dimensions}d-dynamic", lambda x: maximum(x, **options), batch, dynamic=free),
        _record(f"avg_pool{dimensions}d-dynamic", lambda x: average(x, **options), batch, dynamic=free),
        _record(f"max_pool{dimensions}d-unbatched", lambda x: maximum(x, **options), batch[0]),
        _record(f"avg_pool{dimensions}d-unbatched", lambda x: average(x, **options), batch[0]),
        _record(
            f"max_pool{dimensions}d-ceil-dynamic",
            lambda x: maximum(x, **options, ceil_mode=True),
            batch,
            dynamic=free,
        ),
        _record(
            f"avg_pool{dimensions}d-ceil-dynamic",
            lambda x: average(x, **options, ceil_mode=True, count_include_pad=False),
            batch,
            dynamic=free,
        ),
        _record(
            f"avg_pool{dimensions}d-ceil-counted-dynamic",
            lambda x: average(x, **options, ceil_mode=True),
            batch,
            dynamic=free,
        ),
        _record(
            f"max_pool{dimensions}d-dilated",
            lambda x: maximum(x, kernel_size=2, stride=2, dilation=2, padding=1, ceil_mode=True),
            batch,
        ),
        _record(
            f"max_pool{dimensions}d-indices",
            lambda x: maximum(x, **options, return_indices=True),
            batch,
        ),
        _record(
            f"max_pool{dimensions}d-indices-dynamic-ceil",
            lambda x: maximum(x, **options, return_indices=True, ceil_mode=True),
            batch,
            dynamic=free,
        ),
        _record(
            f"max_pool{dimensions}d-dilated-indices",
            lambda x: maximum(x, 2, 2, 1, 2, ceil_mode=True, return_indices=True),
            batch,
        ),
        _record(
            f"max_pool{dimensions}d-dilated-indices-dynamic",
            lambda x: maximum(x, 2, 3, 0, 2, return_indices=True),
            batch,
            dynamic=free,
        ),
        _record(
            f"max_unpool{dimensions}d",
            lambda x: getattr(F, f"max_unpool{dimensions}d")(*maximum(x, 2, 2, return_indices=True), 2, 2),
            floats(2, 3, *(8, 6, 4)[:dimensions]),
            dynamic=free,
        ),
    ]
    return result


def _of_integers(dimensions: int) -> list[Record]:
    maximum, average = MAX[dimensions], AVERAGE[dimensions]
    shape = (2, 3, *SIZES[dimensions])
    free = ({0: "batch", **{axis + 2: f"size{axis}" for axis in range(dimensions)}},)
    whole = integers(*shape, low=-(2**60), high=2**60)
    result = [
        _record(
            f"avg_pool{dimensions}d-int64{'-ceil' * ceil}{'-counted' * counted}{'-free' if dynamic else ''}",
            lambda x, c=ceil, i=counted: average(x, 3, 2, 1, c, i),
            integers(*shape, low=-99, high=99),
            dynamic=dynamic,
        )
        for ceil in (False, True)
        for counted in (False, True)
        for dynamic in (None, free)
    ]
    if dimensions == 1:  # Eager has no max_pool1d of integers.
        return result
    options = {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}
    result += [
        _record(f"max_pool{dimensions}d-int64", lambda x: maximum(x, **options), whole),
        _record(f"max_pool{dimensions}d-int64-dynamic", lambda x: maximum(x, **options), whole, dynamic=free),
        _record(f"max_pool{dimensions}d-int32", lambda x: maximum(x, **options), (whole >> 30).int()),
        _record(f"max_pool{dimensions}d-double", lambda x: maximum(x, **options), floats(*shape).double()),
        _record(
            f"avg_pool{dimensions}d-int64-divisor",
            lambda x: average(x, 3, 2, 1, True, divisor_override=4),
            integers(*shape, low=-99, high=99),
        ),
    ]
    return result


def _adaptive(dimensions: int) -> list[Record]:
    even, odd = (
        ((12,), (11,))
        if dimensions == 1
        else ((12, 8), (11, 7))
        if dimensions == 2
        else ((4, 8, 6), (5, 7, 6))
    )
    average, maximum = ADAPTIVE_AVERAGE[dimensions], ADAPTIVE_MAX[dimensions]
    several = (4, 2, 3)[:dimensions]
    mixed = (1, 3, 2)[:dimensions]
    result = []
    for size in (even, odd):
        batch = floats(2, 3, *size)
        for counts in dict.fromkeys([(1,) * dimensions, several, mixed, (9,) * dimensions]):
            name = f"{dimensions}d-{'x'.join(map(str, size))}-{'x'.join(map(str, counts))}"
            result += [
                _record(
                    f"adaptive_avg_pool{name}",
                    lambda x, c=counts: average(x, c),
                    batch,
                    opsets=(7, 13, HIGHEST),
                ),
                _record(
                    f"adaptive_max_pool{name}",
                    lambda x, c=counts: maximum(x, c),
                    batch,
                    opsets=(7, 13, HIGHEST),
                ),
            ]
    batch = floats(2, 3, *even)
    ones = (1,) * dimensions
    free = ({0: "batch", **{axis + 2: f"size{axis}" for axis in range(dimensions)}},)
    result += [
        _record(
            f"adaptive_{name}_pool{dimensions}d-dynamic-{counts[0]}",
            lambda x, f=pool, c=counts: f(x, c),
            floats(2, 3, *odd),
            opsets=(7, 9, 10, 11, 13, HIGHEST),
            dynamic=free,
        )
        for name, pool in (("avg", average), ("max", maximum))
        for counts in (several, mixed)
    ]
    none = (0,) * dimensions if dimensions < 3 else (2, 0, 1)
    result += [
        _record(
            f"adaptive_pool{dimensions}d-to-nothing-{'fixed' if sizes is None else 'dynamic'}",
            lambda x: (average(x, none), *maximum(x, none, return_indices=True)),
            batch,
            opsets=(7, HIGHEST),
            dynamic=sizes,
        )
        for sizes in (None, free)
    ]
    result += [
        _record(
            f"adaptive_max_pool{dimensions}d-indices-of-one",
            lambda x: maximum(x, ones, return_indices=True),
            batch,
            opsets=(7, 13, HIGHEST),
        ),
        _record(
            f"adaptive_max_pool{dimensions}d-indices",
            lambda x: maximum(x, several, return_indices=True),
            batch,
            opsets=(7, 8, 13, HIGHEST),
        ),
        _record(
            f"adaptive_max_pool{dimensions}d-indices-uneven",
            lambda x: maximum(x, several, return_indices=True),
            floats(2, 3, *odd),
            opsets=(7, 13, HIGHEST),
        ),
    ]
    return result


OTHERS = [
    _record(
        "avg_pool2d-double",
        lambda x: (F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, ceil_mode=True)),
        floats(1, 2, 7, 5, dtype=torch.float64),
    ),
    _record(
        "avg_pool1d-double-infinite",
        lambda x: F.avg_pool1d(x, 2, 1, 1),
        torch.tensor([[[-INF, 1.0, 2.0, INF]]], dtype=torch.float64),
    ),
    _record(
        "adaptive-double",
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_max_pool2d(x, 1),
        ),
        floats(1, 2, 6, 4, dtype=torch.float64),
    ),
    _record("adaptive-longer-than-one", lambda x: F.adaptive_avg_pool1d(x, 3), floats(2, 3, 1)),
    _record("avg_pool2d-divisor", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), floats(1, 2, 8, 7)),
    _record(
        "avg_pool2d-divisor-ceil",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4),
        floats(1, 2, 8, 7),
    ),
    _record("max_pool2d-int8", lambda x: F.max_pool2d(x, 2), integers(1, 2, 6, 6, dtype=torch.int8)),
    _record(
        "max_pool2d-unbatched-indices", lambda x: F.max_pool2d(x, 2, return_indices=True), floats(3, 8, 7)
    ),
    _record(
        "max_pool2d-indices-infinite",
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        torch.full((1, 2, 6, 6), -torch.inf),
        opsets=(7,),
    ),
    _record(
        "max_pool2d-dilated-dynamic",
        lambda x: F.max_pool2d(x, 2, 2, 1, 2),
        floats(1, 2, 6, 6),
        dynamic=({2: "height"},),
        refused=dict.fromkeys((7, 9), "a window may have nothing but padding in it"),
    ),
    _record(
        "adaptive_avg_pool2d-own-height-dynamic",
        lambda x: F.adaptive_avg_pool2d(x, (None, 3)),
        floats(2, 3, 8, 7),
        dynamic=({0: "batch", 2: "height", 3: "width"},),
        opsets=(7, 9, 11, 13, HIGHEST),
    ),
    _record(
        "adaptive_avg_pool2d-computed-dynamic",
        lambda x, y: F.adaptive_avg_pool2d(x, (y.shape[0], x.shape[3] - 2)),
        floats(2, 3, 8, 7),
        floats(3),
        dynamic=({0: "batch", 2: "height", 3: "width"}, {0: "count"}),
        opsets=(7, 9, 11, 13, HIGHEST),
    ),
    _record("local_response_norm-int64", lambda x: F.local_response_norm(x, 3), integers(2, 5, 4, 4)),
    _record("adaptive_avg_pool2d-unbatched", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), floats(3, 8, 7)),
    *(
        _record(
            f"adaptive_avg_pool{len(sizes)}d-empty-batch",
            lambda x, c=counts: ADAPTIVE_AVERAGE[len(c)](x, c),
            torch.zeros(0, 2, *sizes),
            opsets=(7, 13, HIGHEST),
        )
        for sizes, counts in (((8, 7), (3, 5)), ((8, 7, 6), (5, 3, 4)))
    ),
    _record(
        "adaptive_avg_pool2d-one-dynamic",
        lambda x: F.adaptive_avg_pool2d(x, 1),
        floats(2, 3, 8, 7),
        dynamic=({0: "batch", 2: "height", 3: "width"},),
    ),
    _record(
        "adaptive_avg_pool2d-dynamic-batch",
        lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
        floats(2, 3, 8, 7),
        dynamic=({0: "batch"},),
    ),
]
RECORDS = [r for n in (1, 2, 3) for r in _windows(n) + _of_integers(n) + _adaptive(n)] + OTHERS


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


def _positions_of_unknown_sizes() -> list[Record]:
    free = {axis: f"size{axis}" for axis in range(4)}
    ties = integers(2, 3, 7, 5, low=0, high=3).float()
    others = ((floats(1, 2, 9, 8),), (floats(3, 1, 3, 11),), (ties.transpose(2, 3),), (floats(0, 1, 4, 4),))

    def found(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sizes = (3, (2, 4), (1, 3))
        return tuple(item for size in sizes for item in F.adaptive_max_pool2d(x, size, return_indices=True))

    def in_line(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.adaptive_max_pool1d(x[:, :, 0], 4, return_indices=True)

    def in_space(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.adaptive_max_pool3d(x[:, None], (2, 3, 2), return_indices=True)

    return [
        Resized(
            f"positions of {function.__name__} {dtype}",
            function,
            (ties.to(dtype),),
            (9, 13, HIGHEST),
            dynamic=(free,),
            others=tuple((item.to(dtype),) for (item,) in others if item.shape[0] or function is found),
        )
        for function in (found, in_line, in_space)
        for dtype in ((torch.float32, torch.float64) if function is found else (torch.float32,))
    ]


@parametrized(_positions_of_unknown_sizes())
def test_positions_agree_at_other_sizes(record: Record) -> None:
    check_sizes(record)


@pytest.mark.parametrize("opset", [7, 9, 10, 13, HIGHEST])
@pytest.mark.parametrize("average", [True, False])
def test_adaptive_pooling_of_other_sizes_than_the_example(average: bool, opset: int) -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return (F.adaptive_avg_pool2d if average else F.adaptive_max_pool2d)(x, (3, 4))

    program = opsetta.export(
        pooled, (floats(2, 3, 8, 7),), opset=opset, dynamic_shapes={"x": {2: "height", 3: "width"}}
    )
    for sizes in ((8, 7), (3, 4), (2, 1), (11, 30)):
        program.verify((floats(2, 3, *sizes),))


@pytest.mark.parametrize(
    ("pool", "dynamic"),
    [(F.max_pool2d, None), (F.max_pool2d, {"x": {3: "width"}}), (F.avg_pool2d, {"x": {3: "width"}})],
)
def test_a_known_size_is_that_of_the_windows_of_ceil_mode(pool, dynamic) -> None:
    """onnx's inference below 22 counts a window that begins in the padding, as a third one here."""
    options = {"dilation": 2} if pool is F.max_pool2d else {"count_include_pad": False}

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return pool(x, 2, 4, 1, ceil_mode=True, **options)

    for opset in (13, 18):
        program = opsetta.export(pooled, (floats(1, 2, 7, 8),), opset=opset, dynamic_shapes=dynamic)
        onnx.checker.check_model(program.model_proto, full_check=True)
        program.verify()

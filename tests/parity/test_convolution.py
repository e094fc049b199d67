"""Convolutions against eager PyTorch: 1, 2 and 3 dimensions, padding by name, groups, transposes."""

from typing import Any

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, integers, parametrized
from .resized import Resized, check_sizes

OPSETS = (7, 9, 11, 13, 22, HIGHEST)
SIZES = {1: (9,), 2: (9, 8), 3: (6, 5, 7)}
KERNELS = {1: (4,), 2: (4, 2), 3: (4, 2, 3)}
CONVOLUTION = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
TRANSPOSE = {1: torch.nn.ConvTranspose1d, 2: torch.nn.ConvTranspose2d, 3: torch.nn.ConvTranspose3d}


def _seeded(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.3))
    return module.eval()


def _records(dimensions: int) -> list[Record]:
    convolution, transpose, size = CONVOLUTION[dimensions], TRANSPOSE[dimensions], SIZES[dimensions]
    batch, kernel = floats(2, 4, *size), KERNELS[dimensions]
    free = ({0: "batch", **{axis + 2: f"size{axis}" for axis in range(dimensions)}},)

    def record(name: str, module: torch.nn.Module, inputs: torch.Tensor = batch, **options) -> Record:
        return Record(f"{name}{dimensions}d", _seeded(module), (inputs,), OPSETS, **options)

    strided = convolution(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=False)
    grown = transpose(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2)
    return [
        record("conv", convolution(4, 6, 3)),
        record("conv-strided-grouped", strided),
        record("conv-depthwise", convolution(4, 4, 3, padding=1, groups=4)),
        record("conv-unbatched", convolution(4, 6, 2, padding=1), floats(4, *size)),
        record("conv-same", convolution(4, 6, kernel, padding="same", dilation=2)),
        record("conv-valid", convolution(4, 6, kernel, padding="valid", stride=2)),
        record("conv-dynamic", convolution(4, 6, 3, padding=1), dynamic=free),
        record("conv-same-dynamic", convolution(4, 6, kernel, padding="same"), dynamic=free),
        record("conv_transpose", transpose(4, 3, 3, stride=3)),
        record("conv_transpose-grouped", grown),
        record("conv_transpose-unbatched", transpose(4, 3, 2, stride=2, bias=False), floats(4, *size)),
        record("conv_transpose-dynamic", transpose(4, 3, 2, stride=3, output_padding=2), dynamic=free),
    ]


def _functional(x: torch.Tensor, weight: torch.Tensor, transposed: bool) -> torch.Tensor:
    padding = [0, 1] if transposed else [0, 0]
    return torch.convolution(x, weight, None, [2, 2], [0, 1], [1, 1], transposed, padding, 1)


GENERAL = [
    Record(
        f"convolution{'-transposed' if transposed else ''}",
        lambda x, weight, transposed=transposed: _functional(x, weight, transposed),
        (floats(2, 4, 9, 8), floats(4, 4, 3, 3, seed=1)),
        OPSETS,
    )
    for transposed in (False, True)
]
GENERAL += [
    Record(
        "conv-half",
        _seeded(torch.nn.Conv2d(3, 4, 3)).half(),
        (floats(1, 3, 8, 8, dtype=torch.float16),),
        (7, 13, HIGHEST),
    )
]


TRANSPOSED = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}
LARGE_OUTPUT_PADDING = [
    Record(
        f"conv_transpose{dimensions}d output_padding of at least the stride{name}",
        lambda x, w, b, kwargs=kwargs: TRANSPOSED[x.dim() - 2](x, w, b, dilation=4, **kwargs),
        (
            floats(2, 2, *(4, 5, 3)[:dimensions]),
            floats(2, 3, *(2, 3, 1)[:dimensions], seed=1),
            floats(3, seed=2),
        ),
        (7, 11, HIGHEST),
    )
    for dimensions in (1, 2, 3)
    for name, kwargs in (
        ("", {"stride": (2, 1, 3)[:dimensions], "output_padding": (3, 2, 1)[:dimensions]}),
        (" and padding", {"padding": (2, 1, 1)[:dimensions], "output_padding": (1, 3, 2)[:dimensions]}),
    )
]


CONVOLVED = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}


def _same_around_unknown_kernels() -> list[Record]:
    """Weights that are inputs, of kernels whose size is not known; an even one has more zeros at the end."""
    free = {axis: f"size{axis}" for axis in range(4)}

    def convolved(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plane, line = torch.nn.functional.conv2d, torch.nn.functional.conv1d
        return (
            plane(x, weight, padding="same"),
            plane(x, weight, padding="same", dilation=(2, 1)),
            line(x[0, :, 0], weight[:, :, 0], padding="same"),
        )

    return [
        Resized(
            "conv-same of unknown kernels",
            convolved,
            (floats(2, 3, 8, 9), floats(5, 3, 3, 4)),
            (9, 13, HIGHEST),
            dynamic=(free, {axis: f"kernel{axis}" if axis != 1 else "size1" for axis in range(4)}),
            others=((floats(1, 2, 6, 7), floats(4, 2, 2, 5)),),
        )
    ]


def _of_integers() -> list[Record]:
    records = []
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        opsets = (9, 11, 13, HIGHEST) if kind == torch.int64 else (7, 9, 11, 13, HIGHEST)
        refused = dict.fromkeys((7, 8), "MatMul takes INT64 from 9 on") if kind == torch.int64 else {}
        low = 0 if kind == torch.uint8 else -99
        records += [
            Record(
                f"conv{dimensions}d of {kind}",
                lambda x, w, b: CONVOLVED[x.dim() - 2](x, w, b, stride=2, padding=1, groups=2),
                (
                    integers(2, 2, *(7, 6, 5)[:dimensions], low=low, high=99, dtype=kind),
                    integers(4, 1, *(3, 2, 3)[:dimensions], low=low, high=99, dtype=kind, seed=1),
                    integers(4, low=low, high=99, dtype=kind, seed=2),
                ),
                opsets,
                refused,
            )
            for dimensions in (1, 2, 3)
        ]
    records += [
        Record(
            "conv2d of int64 dynamic",
            lambda x, w: torch.nn.functional.conv2d(x, w, padding=2, dilation=2),
            (integers(2, 2, 7, 6), integers(3, 2, 3, 2)),
            (9, 11, 13, HIGHEST),
            dynamic=({0: "n", 2: "h", 3: "w"}, None),
        ),
        Record(
            "conv2d of int64 same",
            lambda x, w: torch.nn.functional.conv2d(x, w, padding="same"),
            (integers(2, 7, 6), integers(3, 2, 2, 2)),
            (9, 13, HIGHEST),
        ),
    ]
    return records


@parametrized(
    [record for dimensions in (1, 2, 3) for record in _records(dimensions)]
    + GENERAL
    + LARGE_OUTPUT_PADDING
    + _of_integers()
)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_same_around_unknown_kernels())
def test_agrees_at_other_sizes(record: Record) -> None:
    check_sizes(record)


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_weights_keep_their_names(opset: int) -> None:
    module = _seeded(torch.nn.Conv2d(3, 4, 3))
    program = opsetta.export(module, (floats(1, 3, 8, 8),), opset=opset)
    assert {tensor.name for tensor in program.model_proto.graph.initializer} == {"weight", "bias"}


def resize_transposed(dimensions: int, stride: int, dilation: int, groups: int) -> Any:
    weight = floats(4, 2, *(3,) * dimensions, seed=5)

    def function(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        sizes = like.shape[-dimensions:]
        shortest = [(n - 1) * stride + 2 * dilation - 1 for n in x.shape[-dimensions:]]
        extra = [size - least for size, least in zip(sizes, shortest, strict=True)]
        options = {"stride": stride, "padding": 1, "dilation": dilation, "groups": groups}
        return TRANSPOSED[dimensions](x, weight, output_padding=extra, **options)

    return function


@pytest.mark.parametrize(
    ("dimensions", "stride", "dilation", "groups"), [(1, 3, 1, 2), (2, 2, 1, 1), (3, 1, 2, 1)]
)
def test_the_padding_of_a_transposed_convolution_is_computed(
    dimensions: int, stride: int, dilation: int, groups: int
) -> None:
    def inputs(size: int, extra: int) -> tuple[torch.Tensor, torch.Tensor]:
        length = (size - 1) * stride + 2 * dilation - 1 + extra
        return floats(2, 4, *(size,) * dimensions), floats(*(length,) * dimensions)

    names = "hwd"[:dimensions]
    dynamic = {2 + i: name for i, name in enumerate(names)}, {i: f"{name}2" for i, name in enumerate(names)}
    record = Record(
        "output size",
        resize_transposed(dimensions, stride, dilation, groups),
        inputs(4, 0),
        dynamic=dynamic,
        atol=1e-4,
    )
    most = max(stride, dilation) - 1
    check(record, [inputs(4, most), inputs(3, 1), inputs(1, most)])

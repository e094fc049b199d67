"""Convolutions whose number of groups is computed from sizes, against eager PyTorch at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opsetta

from ..opsets import HIGHEST

CONVOLVED = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
KERNEL = (3, 2, 2)


def deltas(x: Tensor) -> Tensor:
    """torchaudio's `compute_deltas`: one kernel for each row."""
    rows = F.pad(x.reshape(1, -1, x.shape[-1]), (2, 2), mode="replicate")
    kernel = torch.arange(-2, 3, dtype=x.dtype).repeat(rows.shape[1], 1, 1)
    return (F.conv1d(rows, kernel, groups=rows.shape[1]) / 10).reshape(x.shape)


def per_sample(dimensions: int, *, transposed: bool = False, bias: bool = False, **settings: Any) -> Callable:
    """StyleGAN2's convolution: each sample has a kernel of its own, of 4 channels and 6 results."""
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn(4, 6, *KERNEL[:dimensions], generator=generator)

    def convolve(x: Tensor, style: Tensor) -> Tensor:
        batch, channels = x.shape[:2]
        kernels = kernel * style.reshape(batch, channels, 1, *[1] * dimensions)
        kernels = kernels if transposed else kernels.transpose(1, 2)
        rows = x.reshape(1, batch * channels, *x.shape[2:])
        result = (TRANSPOSED if transposed else CONVOLVED)[dimensions](
            rows,
            kernels.reshape(-1, kernels.shape[2], *KERNEL[:dimensions]),
            torch.arange(6.0).repeat(batch) if bias else None,
            groups=batch,
            **settings,
        )
        return result.reshape(batch, -1, *result.shape[2:])

    return convolve


CASES: dict[str, tuple[int, Callable]] = {
    "1 dimension": (1, per_sample(1, stride=2, padding=1, dilation=2)),
    "2 dimensions": (2, per_sample(2, stride=(2, 1), padding=(1, 2), dilation=(1, 2), bias=True)),
    "3 dimensions": (3, per_sample(3)),
    "same padding": (2, per_sample(2, padding="same", dilation=2)),
    "transposed, 1 dimension": (1, per_sample(1, transposed=True, stride=3, output_padding=2, bias=True)),
    "transposed, 2 dimensions": (
        2,
        per_sample(2, transposed=True, stride=2, padding=(2, 1), output_padding=1, dilation=(2, 1)),
    ),
    "transposed, 3 dimensions": (3, per_sample(3, transposed=True, padding=2)),
    "transposed, rest beyond the stride": (
        1,
        per_sample(1, transposed=True, stride=2, output_padding=2, dilation=3),
    ),
}


def _inputs(dimensions: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shape = [length + axis for axis in range(dimensions)]
    return torch.randn(batch, 4, *shape, generator=generator), torch.randn(batch, 4, generator=generator)


def _padded_sums(x: Tensor) -> Tensor:
    rows = x.reshape(1, -1, x.shape[-1])
    return F.conv1d(rows, torch.ones(rows.shape[1], 1, 3, dtype=x.dtype), padding=2, groups=rows.shape[1])


@pytest.mark.parametrize(
    ("function", "dtype", "opset"),
    [
        (deltas, torch.float32, 7),
        (deltas, torch.float32, 28),
        (deltas, torch.float64, 13),
        (_padded_sums, torch.int64, 9),
    ],
)
def test_a_kernel_for_each_row_agrees(function: Callable, dtype: torch.dtype, opset: int) -> None:
    x = torch.arange(54.0).reshape(2, 3, 9).square().to(dtype)
    shapes = ({0: "batch", 1: "bands", 2: "time"},)
    program = opsetta.export(function, (x,), opset=opset, dynamic_shapes=shapes)
    program.verify()
    program.verify((torch.cat([x, x], 1)[:1],))


@pytest.mark.parametrize("opset", [7, 13, HIGHEST])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_for_each_sample_agrees(name: str, opset: int) -> None:
    dimensions, convolve = CASES[name]
    shapes = {"x": {0: "batch", 2: "length"}, "style": {0: "batch"}}
    program = opsetta.export(convolve, _inputs(dimensions, 2, 6), opset=opset, dynamic_shapes=shapes)
    program.verify()
    x, style = _inputs(dimensions, 3, 6)
    program.verify((torch.cat([x, x], 2), style))
    program.verify((x[:1], style[:1]))

"""Operators that torch.export refuses, or whose kernels need Python numbers, keep dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opsetta

pytestmark = pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")


class Characters(nn.Module):
    """CANINE and text CNNs: a mask or features pooled over a dynamic length."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.MaxPool1d(kernel_size=4, stride=4)(x.float().unsqueeze(1)).squeeze(1)


class ReferencePoints(nn.Module):
    """Deformable DETR: the centres of an image's elements."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        rows, columns = torch.meshgrid(
            torch.linspace(0.5, height - 0.5, height, dtype=x.dtype, device=x.device),
            torch.linspace(0.5, width - 0.5, steps=width),
            indexing="ij",
        )
        return torch.stack([columns / width, rows / height], -1) + x[0, 0, :, :, None]


class Transformer(nn.Module):
    """A spatial transformer of any image size."""

    def __init__(self, align_corners: bool) -> None:
        super().__init__()
        self.align_corners = align_corners

    def forward(self, theta: Tensor, x: Tensor) -> Tensor:
        return F.affine_grid(theta, list(x.shape), align_corners=self.align_corners) + x.mean()


def _sorted_along(x: Tensor) -> tuple[Tensor, Tensor]:
    order = x[:1].argsort(2)
    return x.take_along_dim(order, 2), torch.take_along_dim(x, order.reshape(-1))


class Enhanced(nn.Module):
    """Speech enhancement: the signal of a spectrum, as long as the input."""

    def __init__(self, taps: int, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("window", torch.hamming_window(taps))

    def forward(self, x: Tensor, noisy: Tensor) -> Tensor:
        spectrum = torch.complex(x, x.roll(1, -1))
        options = {"window": self.window, "length": noisy.shape[-1], **self.options}
        return noisy + torch.istft(spectrum, 8, 2, len(self.window), **options)


_BATCH = {0: "batch", 2: "height", 3: "width"}


def _pad_rows(x: Tensor) -> Tensor:
    height = x.shape[2]
    if height % 4:
        x = F.pad(x, (0, 0, 0, 4 - height % 4))
    return x.unflatten(2, (-1, 4)).sum(3)


def _join_rows(x: Tensor) -> Tensor:
    count = x.shape[1]
    remainder = count % 4
    if remainder != 0:
        x = torch.cat([x, x.new_zeros(x.shape[0], 4 - remainder, 3)], 1)
    return x.view(x.shape[0], -1, 4, 3).cumsum(2).flatten(1, 2)[:, :count]


def _crop(x: Tensor) -> Tensor:
    first = round((x.shape[2] - 4) / 2.0)
    return F.interpolate(x, size=(round(x.shape[2] * 1.3), 4))[:, :, first : first + 4]


class RelativePositions(nn.Module):
    """DeBERTa: the part of a table that the length needs, of which a tensor says where it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(12.0))

    def forward(self, x: Tensor) -> Tensor:
        span = torch.tensor(min(x.shape[1], 6))
        return x.sum(1) * self.table[6 - span : 6 + span].cumsum(0).mean()


CASES: dict[str, tuple[Callable[..., Any], Any, list[tuple[tuple[int, ...], ...]]]] = {
    "pad to a multiple": (_pad_rows, ({2: "h"},), [((1, 2, 9, 3),), ((1, 2, 8, 3),), ((1, 2, 7, 3),)]),
    "pad, from a multiple": (_pad_rows, ({2: "h"},), [((1, 2, 8, 3),), ((1, 2, 9, 3),), ((1, 2, 1, 3),)]),
    "join to a multiple": (_join_rows, ({1: "n"},), [((2, 10, 3),), ((2, 7, 3),), ((2, 16, 3),)]),
    "join, from a multiple": (_join_rows, ({1: "n"},), [((2, 8, 3),), ((2, 7, 3),), ((2, 16, 3),)]),
    "maximum of a table": (RelativePositions(), ({1: "n"},), [((2, 4, 3),), ((2, 6, 3),), ((2, 9, 3),)]),
    "max_pool1d": (Characters(), ({0: "batch", 1: "length"},), [((2, 19),), ((1, 4),), ((3, 33),)]),
    "max_pool1d, every argument": (
        lambda x: F.max_pool1d(x, 3, 2, 1, 2, True),
        ({1: "length"},),
        [((3, 19),), ((3, 5),), ((3, 16),)],
    ),
    "take_along_dim": (
        _sorted_along,
        ({0: "batch", 2: "length"},),
        [((2, 3, 5),), ((1, 3, 1),), ((4, 3, 8),)],
    ),
    "linspace": (ReferencePoints(), (_BATCH,), [((2, 1, 5, 6),), ((1, 1, 1, 1),), ((1, 1, 2, 9),)]),
    "exclusive or": (
        lambda x: x + (x.shape[0] ^ x.shape[1]),
        ({0: "n", 1: "m"},),
        [((5, 6),), ((1, 1),), ((8, 3),)],
    ),
    "random numbers of the default generator": (
        lambda x: (
            x + 0 * torch.randn(x.shape, generator=None),
            torch.rand((x.shape[0],), generator=None) < 2,
            torch.randint(3, 4, (x.shape[1],), generator=None, device=x.device),
            torch.randperm(x.shape[0], generator=None).sort()[0],
        ),
        ({0: "n", 1: "m"},),
        [((5, 6),), ((1, 1),), ((8, 3),)],
    ),
    "affine_grid": (
        Transformer(align_corners=False),
        ({0: "batch"}, _BATCH),
        [((2, 2, 3), (2, 1, 5, 6)), ((1, 2, 3), (1, 1, 1, 2)), ((3, 2, 3), (3, 1, 8, 7))],
    ),
    "istft": (
        Enhanced(8),
        ({0: "batch", 2: "frames"}, {0: "batch", 1: "length"}),
        [((2, 5, 7), (2, 12)), ((1, 5, 7), (1, 16)), ((3, 5, 9), (3, 5)), ((2, 5, 4), (2, 30))],
    ),
    "istft without a half frame before": (
        Enhanced(8, center=False, normalized=True, onesided=True),
        ({2: "frames"}, {1: "length"}),
        [((2, 5, 7), (2, 15)), ((2, 5, 9), (2, 5)), ((2, 5, 4), (2, 30))],
    ),
    "istft of frames with an odd size": (
        lambda x, noisy: (x + 0j).istft(9, 4, 9, torch.ones(9), True, False, True, noisy.shape[-1]),
        ({1: "frames"}, {0: "length"}),
        [((5, 7), (20,)), ((5, 9), (36,)), ((5, 4), (30,))],
    ),
    "istft of a spectrum with reflected ends": (
        lambda x: torch.stft(x, 16, 4, window=torch.ones(16), return_complex=True).istft(
            16, window=torch.ones(16)
        ),
        ({0: "batch", 1: "length"},),
        [((2, 24),), ((1, 16),), ((3, 31),)],
    ),
    "affine_grid of a volume": (
        Transformer(align_corners=True),
        ({0: "batch"}, {0: "batch", 2: "depth", 3: "height", 4: "width"}),
        [((2, 3, 4), (2, 1, 5, 6, 3)), ((3, 3, 4), (3, 1, 2, 1, 4))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_size_agrees(name: str) -> None:
    model, dynamic, calls = CASES[name]
    if isinstance(model, nn.Module):
        model.eval()
    generator = torch.Generator().manual_seed(0)
    inputs = [tuple(torch.randn(shape, generator=generator) for shape in call) for call in calls]
    program = opsetta.export(model, inputs[0], opset=17, dynamic_shapes=dynamic)
    reasons = [r.reason for dimension in program.dimensions.values() for r in dimension.restrictions]
    assert all("max" in name or reason.startswith("the model refuses") for reason in reasons), reasons
    for lowered in (program, program.lower(opset=10)):
        for call in inputs:
            lowered.verify(call)


def test_sizes_are_rounded_half_to_even() -> None:
    program = opsetta.export(_crop, (torch.randn(1, 2, 9, 5),), opset=13, dynamic_shapes=({2: "h", 3: "w"},))
    for height in (10, 11, 15):
        program.verify((torch.randn(1, 2, height, 6),))


def test_other_calls_of_linspace_are_left_to_torch() -> None:
    def model(x: Tensor) -> Tensor:
        return x + torch.linspace(2, 9, x.shape[0], dtype=torch.int64) + torch.linspace(0, 1, 5)

    opsetta.export(model, (torch.randn(5),), opset=17).verify()
    with pytest.raises(opsetta.CaptureError, match="int64"):
        opsetta.export(model, (torch.randn(5),), dynamic_shapes=({0: "n"},))

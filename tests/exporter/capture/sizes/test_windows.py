"""Models that divide images of any height and width into windows: padding, shifts, masks and resizing."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opsetta


class Windows(nn.Module):
    """Pads an image to whole windows, mixes within each, and crops the result."""

    def __init__(self, window: int, shift: int = 0) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.mix = nn.Linear(window * window, window * window)

    def partition(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        n = self.window
        x = x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5)
        return x.contiguous().view(-1, n * n, c)

    def mask(self, x: Tensor) -> Tensor:
        """Numbers the regions of the shifted image, as Swin does for its attention."""
        regions = torch.zeros((1, x.shape[1], x.shape[2], 1))
        for i, rows in enumerate((slice(0, -self.window), slice(-self.window, None))):
            regions[:, rows, :, :] = i + 1.0
        return self.partition(regions)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        n = self.window
        below, right = (n - h % n) % n, (n - w % n) % n
        x = F.pad(torch.roll(x, (-self.shift, -self.shift), (1, 2)), (0, 0, 0, right, 0, below))
        _, padded_h, padded_w, _ = x.shape
        windows = self.mix(self.partition(x).transpose(1, 2)).transpose(1, 2)
        if self.shift:
            windows = (windows.view(b, -1, n * n, c) * self.mask(x)).flatten(0, 1)
        x = windows.view(-1, padded_h // n, padded_w // n, n, n, c).permute(0, 1, 3, 2, 4, 5)
        x = x.contiguous().view(-1, padded_h, padded_w, c)[:, :h, :w, :].contiguous()
        return torch.roll(x, (self.shift, self.shift), (1, 2))


class Merging(nn.Module):
    """Joins neighbours, after padding to an even height and width, as Swin does between its stages."""

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        x = F.pad(x, (0, 0, 0, w % 2, 0, h % 2))
        b, h, w, c = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 4, 2, 5).flatten(3)


class Unfolded(nn.Module):
    """Resizes to an even height and width if necessary, as MobileViT does in each block."""

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        new_h, new_w = math.ceil(h / 2) * 2, math.ceil(w / 2) * 2
        resized = new_h != h or new_w != w
        if resized:
            x = F.interpolate(x, size=(new_h, new_w), mode="bilinear", align_corners=False)
        x = x.reshape(b * c * (new_h // 2), 2, new_w // 2, 2).transpose(1, 2)
        x = x.reshape(b, c, -1, 4).softmax(2)
        x = x.reshape(b * c * (new_h // 2), new_w // 2, 2, 2).transpose(1, 2).reshape(b, c, new_h, new_w)
        return F.interpolate(x, size=(h, w), mode="bilinear", align_corners=False) if resized else x


def stages() -> nn.Module:
    return nn.Sequential(Windows(4), Merging(), Windows(4))


def shifted() -> nn.Module:
    return nn.Sequential(Windows(4), Windows(4, shift=2))


def resized() -> nn.Module:
    return Unfolded()


@pytest.mark.parametrize(
    ("name", "shape", "others"),
    [
        # The last stage has a single window.
        ("stages", (2, 8, 8, 3), [(1, 8, 16, 3), (2, 17, 9, 3), (1, 3, 12, 3)]),
        ("shifted", (2, 16, 16, 3), [(1, 17, 24, 3), (3, 31, 12, 3)]),
        ("resized", (2, 3, 16, 16), [(1, 3, 17, 16), (2, 3, 14, 21), (1, 3, 16, 8)]),
    ],
)
def test_any_height_and_width(name: str, shape: tuple[int, ...], others: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    model = {"stages": stages, "shifted": shifted, "resized": resized}[name]().eval()
    height = 2 if name == "resized" else 1
    program = opsetta.export(
        model, (torch.randn(shape),), opset=13, dynamic_shapes=({0: "b", height: "h", height + 1: "w"},)
    )
    for sizes in (shape, *others):
        program.verify((torch.randn(sizes),))


def test_a_copy_that_the_model_writes_to_stays_a_restriction() -> None:
    """At the size of the example `contiguous` returns its argument, so that the write changes both."""

    def write_to_slice(x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x * 2
        part = doubled[:, : x.shape[1] // 8 * 8].contiguous()
        part += 1
        return doubled, part

    program = opsetta.export(
        write_to_slice, (torch.randn(2, 8),), opset=13, dynamic_shapes=({1: "n"},), narrow=True
    )
    program.verify((torch.randn(2, 16),))
    with pytest.raises(opsetta.DimensionError):
        program.verify((torch.randn(2, 9),))

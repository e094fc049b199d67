"""Trials at other sizes of models that read integers from buffers and tensors, or decide on values there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opsetta
from opsetta.exporter.capture.sizes import size_regions


def halve(x: torch.Tensor) -> torch.Tensor:
    """The condition changes nothing."""
    return x / 2 if x.shape[1] > 12 else x.div(2)


class Codec(nn.Module):
    """The padding is computed from the length and from buffers of one integer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(3), persistent=False)
        self.register_buffer("padding", torch.tensor(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        frames = torch.ceil((length - 5 + self.padding) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + 5 - self.padding - length
        return halve(F.pad(x, (self.padding, extra)))  # type: ignore[arg-type]


class Counter(Codec):
    """As well, the model writes to a buffer of one integer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


class LocalScores(nn.Module):
    """As many scores as the sample with the most chosen positions has come first, and are cut off again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        most = (x > 0).sum(1).max()
        scores = torch.cat([x.new_zeros(x.shape[0], most), x], 1)  # type: ignore[call-overload]
        local = scores.narrow(-1, most, scores.size(-1) - most)  # type: ignore[arg-type, call-overload]
        assert local.size(-1) == x.size(-1)
        return halve(x) + local


@pytest.mark.parametrize("model", [Counter(), LocalScores()], ids=lambda m: type(m).__name__)
def test_known_integers_make_sizes_comparable(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_regions, "MOST_REGIONS", 1)
    model.eval()
    program = opsetta.export(
        model, (torch.randn(2, 10),), opset=13, dynamic_shapes=({0: "b", 1: "n"},), mutations="outputs"
    )
    for shape in ((1, 9), (3, 12), (2, 31), (1, 47)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), model(x))


def scale_if_positive(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 8 and x.sum() > 0:
        return x * 2
    return x + 1


def scale_by_mean(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 8:
        return x * float(x.mean())
    return x + 1


def choose_in_long_texts(x: torch.Tensor) -> torch.Tensor:
    for row in range(2):
        if x.shape[0] > 8 and (x[row] > 0).all().item() and x[row].max() > 3:
            x = x - 1
    return x


@pytest.mark.parametrize("function", [scale_if_positive, scale_by_mean, choose_in_long_texts])
def test_sizes_at_which_the_model_decides_on_values_are_not_excluded_silently(function: object) -> None:
    example = (torch.rand(4, 3),)
    with pytest.raises(opsetta.NarrowedError, match="n <= 8"):
        opsetta.export(function, example, opset=13, dynamic_shapes=({0: "n"},))
    program = opsetta.export(function, example, opset=13, dynamic_shapes=({0: "n <= 8"},))
    program.verify((torch.rand(7, 3),))


class PackedAttention(nn.Module):
    """Attention within each of two texts, whose lengths are values; `causal` is tested after a length."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        causal, parts = False, []
        for part in x.split(lengths.tolist(), dim=2):
            is_causal = part.shape[2] > 1 and causal
            parts.append(F.scaled_dot_product_attention(part, part, part, is_causal=is_causal))
        return torch.cat(parts, 2).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("opset", [9, 13, 23])
def test_attention_over_lengths_that_are_values(opset: int) -> None:
    example = (torch.randn(1, 2, 9, 4), torch.tensor([4, 5]))
    program = opsetta.export(PackedAttention().eval(), example, opset=opset, dynamic_shapes=({2: "n"}, None))
    for lengths in ([1, 8], [7, 5], [3, 1]):
        inputs = torch.randn(1, 2, sum(lengths), 4), torch.tensor(lengths)
        torch.testing.assert_close(program(*inputs), PackedAttention()(*inputs), atol=1e-5, rtol=1e-5)

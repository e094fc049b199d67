"""Models whose Python code asks for the values of tensors, after the patterns of published models.

Each kind is one that torch.export refuses: see `KINDS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    """vector_quantize_pytorch and EnCodec: the codebook is initialised by the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initted", torch.tensor([True]))
        self.register_buffer("embed", torch.randn(8, 4))
        self.register_buffer("cluster_size", torch.ones(8))

    def init_embed(self, x: torch.Tensor) -> None:
        if self.initted:
            return
        self.embed.copy_(x.reshape(-1, 4)[:8])
        self.initted.fill_(True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.init_embed(x)
        if self.cluster_size.sum() == 0:
            raise RuntimeError("the codebook is empty")
        distances = x.pow(2).sum(-1, keepdim=True) - 2 * x @ self.embed.t() + self.embed.pow(2).sum(-1)
        codes = distances.argmin(-1)
        return F.embedding(codes, self.embed), codes


class FreshCodebook(nn.Module):
    """A codebook before its first batch: the buffer that decides is written in the same forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initted", torch.tensor(False))
        self.register_buffer("embed", torch.zeros(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if not self.initted:
                self.embed.copy_(x[:4])
                self.initted.logical_not_()
        return x @ self.embed.t()


class Scatter(nn.Module):
    """SchNet: the number of molecules is the largest index and one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        size = int(index.max()) + 1
        return torch.zeros(size, 2).index_add(0, index, self.layer(x))


class Matching(nn.Module):
    """LoFTR: coarse matches are the mutual maxima above a threshold; none at all is a path of its own."""

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.einsum("nlc,nsc->nls", first, second).softmax(-1)
        mask = (scores > 0.05) & (scores == scores.max(dim=2, keepdim=True).values)
        found, columns = mask.max(dim=2)
        b, i = torch.where(found)
        j = columns[b, i]
        if b.shape[0] == 0:
            return first.new_empty(0, first.shape[-1]), first.new_empty(0)
        return first[b, i] + second[b, j], scores[b, i, j]


class WindowAttention(nn.Module):
    """LED and Longformer: pad to windows, cut overlapping chunks by strides, and branch on global tokens."""

    def __init__(self, window: int = 4) -> None:
        super().__init__()
        self.window = window
        self.query = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, _ = x.shape
        if attention_mask is None:
            attention_mask = torch.ones(batch, length)
        padding = (self.window - length % self.window) % self.window
        if padding > 0:
            x = F.pad(x, (0, 0, 0, padding))
            attention_mask = F.pad(attention_mask, (0, padding), value=0)
        is_global = attention_mask > 1
        is_any_global = is_global.flatten().any().item()
        chunks = self.query(x.transpose(0, 1)).transpose(0, 1)
        count: Any = torch.div(chunks.size(1), self.window, rounding_mode="trunc")
        chunks = chunks.view(batch, count, self.window, chunks.size(2))
        size, stride = list(chunks.size()), list(chunks.stride())
        size[1] = size[1] * 2 - 1
        stride[1] = stride[1] // 2
        windows = chunks.as_strided(size, stride)
        mixed = (windows.softmax(-1) * windows).sum(2)
        if is_any_global:
            mixed = mixed + x.mean(1, keepdim=True)
        return mixed[:, :length]


class SlidingWindow(nn.Module):
    """MONAI: inference by overlapping windows at computed positions, averaged by a map of counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3, padding=1)
        self.register_buffer("window", torch.tensor([8, 8]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = self.window.tolist()
        counts = torch.zeros(1, 1, *x.shape[2:])
        total = torch.zeros(x.shape[0], 2, *x.shape[2:])
        for top in range(0, max(x.shape[2] - height, 0) + 1, height // 2):
            for left in range(0, max(x.shape[3] - width, 0) + 1, width // 2):
                patch = x[:, :, top : top + height, left : left + width]
                total[:, :, top : top + height, left : left + width] += self.layer(patch)
                counts[:, :, top : top + height, left : left + width] += 1
        return total / counts


class EulerStep(nn.Module):
    """diffusers: a step of the Euler scheduler finds the time step in its schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("timesteps", torch.linspace(999, 0, 11))
        self.register_buffer("sigmas", torch.linspace(14.6, 0.0, 12))

    def forward(self, noise: torch.Tensor, timestep: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
        found = (self.timesteps == timestep).nonzero()
        position = 1 if len(found) > 1 else 0
        step = found[position].item()
        sigma = self.sigmas[step]
        derivative = (sample - (sample - sigma * noise)) / sigma
        return sample + derivative * (self.sigmas[step + 1] - sigma)


class RoundStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.round(x / scale) * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class IntegerLinear(nn.Module):
    """I-BERT: scales from weights and ranges, powers of two of them by numpy, and autograd functions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("low", torch.tensor(-3.0))
        self.register_buffer("high", torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.low == self.high:
            raise RuntimeError("the ranges were not calibrated")
        scale = torch.maximum(self.low.abs(), self.high.abs()) / 127
        weight_scale = self.weight.detach().abs().max() / 127
        mantissa, exponent = np.frexp((scale * weight_scale).cpu().numpy())
        weight = RoundStraightThrough.apply(self.weight, weight_scale)
        result = F.linear(RoundStraightThrough.apply(x, scale), weight)
        return result * (float(mantissa) * 2.0 ** float(exponent))


class StreamingConvolution(nn.Module):
    """Mimi: the padding of a convolution is computed by tensors, from sizes and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 4, 4, stride=2)
        self.second = nn.Conv1d(4, 4, 4, stride=2)
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("kernel_size", torch.tensor(4))
        self.register_buffer("padding_total", torch.tensor(2))

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        frames = (length - self.kernel_size + self.padding_total) / self.stride + 1
        frames = torch.ceil(frames).to(torch.int64) - 1
        ideal = frames * self.stride + self.kernel_size - self.padding_total
        extra = ideal - length
        left, right = self.padding_total - 1, 1 + extra
        if x.shape[-1] <= max(left, right):
            x = F.pad(x, (0, 1))
        return F.pad(x, (int(left), int(right)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.pad(F.elu(self.first(self.pad(x)))))


class HashAttention(nn.Module):
    """Reformer: attention within buckets of a locality-sensitive hash, sorted, in chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rotations", torch.randn(8, 2))
        self.register_buffer("buckets", torch.tensor(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.buckets % 2 != 0:
            raise ValueError("the number of buckets is even")
        rotated = x @ self.rotations
        hashes = torch.cat([rotated, -rotated], dim=-1).argmax(-1)
        offsets = torch.arange(x.shape[1])
        order = (x.shape[1] * hashes + offsets).argsort(-1)
        inverse = order.argsort(-1)
        chunks = x.gather(1, order[..., None].expand_as(x)).reshape(x.shape[0], -1, 4, x.shape[-1])
        scores = chunks @ chunks.transpose(-1, -2)
        mixed = (scores.softmax(-1) @ chunks).reshape(x.shape)
        return mixed.gather(1, inverse[..., None].expand_as(x))


class Queries(nn.Module):
    """RT-DETR: the batch size is the `len` of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = len(x)
        scores = x.sum(-1).topk(3, dim=1).indices
        anchors = self.anchors.unsqueeze(0).repeat(batch, 1, 1)
        return anchors.gather(1, scores.unsqueeze(-1).repeat(1, 1, 4))


class SparseAttention(nn.Module):
    """Informer: the number of sampled keys is a logarithm of the length, which is in a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        count = min(int(self.factor) * int(np.ceil(np.log1p(length))), length)
        sparsity = (x @ x.transpose(1, 2)).max(-1).values - x.mean(-1)
        top = sparsity.topk(count, sorted=False).indices
        rows = torch.arange(x.shape[0])[:, None]
        attended = (x[rows, top] @ x.transpose(1, 2)).softmax(-1) @ x
        context = x.cumsum(1)
        context[rows, top] = attended
        return context


class CausalVideo(nn.Module):
    """CogVideoX: frames go through a causal convolution in batches that pass on a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(2, 2, (3, 3, 3), padding=(0, 1, 1))
        self.register_buffer("frames_per_batch", torch.tensor(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = x.shape[2]
        size = int(self.frames_per_batch)
        cache: dict[str, torch.Tensor | None] = {"conv": None}
        parts = []
        for start in range(frames // size):
            remaining = frames % size
            begin = size * start + (0 if start == 0 else remaining)
            part = x[:, :, begin : size * (start + 1) + remaining]
            before = cache["conv"] if cache["conv"] is not None else part[:, :, :1].repeat(1, 1, 2, 1, 1)
            part = torch.cat([before, part], 2)
            cache["conv"] = part[:, :, -2:].clone()
            parts.append(self.convolution(part))
        return torch.cat(parts, 2)


class Modalities(nn.Module):
    """Qwen2-VL: a number of an input is the key of a dict, and results become a tensor by way of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = {0: 1.0, 1: 0.5}

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = kinds.tolist()[0]
        scale = self.scales[number]
        return x * scale, torch.tensor([row.max() + 1 for row in x])


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of model that depends on values.

    Attributes:
        make: makes the model and its arguments.
        options: options of the export.
        others: makes further arguments, with which the exported model must agree too.
        line: the line at which the model is refused without `specialize=True`; None if it exports.
    """

    make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    others: Callable[[], list[tuple[Any, ...]]] = list
    line: str | None = None


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


_BATCH_AND_LENGTH = {0: "batch", 1: "length"}

KINDS: dict[str, Kind] = {
    "vector quantization": Kind(
        lambda: (Codebook(), (_tensor(2, 5, 4),)),
        {"dynamic_shapes": {"x": _BATCH_AND_LENGTH}},
        lambda: [(_tensor(3, 7, 4),)],
    ),
    "first batch": Kind(
        lambda: (FreshCodebook(), (_tensor(6, 4),)), {"mutations": "drop"}, lambda: [(_tensor(6, 4),)]
    ),
    "SchNet": Kind(
        lambda: (Scatter(), (_tensor(4, 3), torch.tensor([0, 0, 1, 2]))),
        {},
        lambda: [(_tensor(4, 3), torch.tensor([0, 3, 1, 4]))],
    ),
    "LoFTR": Kind(
        lambda: (Matching(), (_tensor(1, 6, 4), _tensor(1, 5, 4))),
        {"dynamic_shapes": {"first": {1: "n"}, "second": {1: "m"}}},
        # Without large scores nothing matches.
        lambda: [(_tensor(1, 6, 4), _tensor(1, 5, 4)), (torch.zeros(1, 3, 4), torch.zeros(1, 30, 4))],
    ),
    "Longformer": Kind(lambda: (WindowAttention(), (_tensor(2, 10, 8),)), {}, lambda: [(_tensor(2, 10, 8),)]),
    "LED": Kind(
        lambda: (WindowAttention(), (_tensor(2, 10, 8), torch.ones(2, 10))),
        {"dynamic_shapes": {"x": _BATCH_AND_LENGTH, "attention_mask": _BATCH_AND_LENGTH}, "narrow": True},
        # 2 marks a global token.
        lambda: [
            (_tensor(b, n, 8), torch.randint(0, high, (b, n)).float())
            for b, n, high in ((2, 10, 2), (1, 3, 3), (3, 17, 3))
        ],
    ),
    "sliding window": Kind(
        lambda: (SlidingWindow(), (_tensor(1, 1, 12, 16),)), {}, lambda: [(_tensor(1, 1, 12, 16),)]
    ),
    "Euler scheduler": Kind(
        lambda: (EulerStep(), (_tensor(1, 4), torch.tensor(999.0), _tensor(1, 4))),
        {},
        lambda: [(_tensor(1, 4), torch.tensor(step), _tensor(1, 4)) for step in (999.0, 499.5, 99.9)],
    ),
    "I-BERT": Kind(lambda: (IntegerLinear(), (_tensor(3, 4),)), {}, lambda: [(_tensor(3, 4),)]),
    "Mimi": Kind(lambda: (StreamingConvolution(), (_tensor(1, 1, 33),)), {}, lambda: [(_tensor(1, 1, 33),)]),
    "Reformer": Kind(
        lambda: (HashAttention(), (_tensor(2, 8, 8),)),
        {"dynamic_shapes": {"x": {0: "batch"}}},
        lambda: [(_tensor(3, 8, 8),)],
    ),
    "RT-DETR": Kind(
        lambda: (Queries(), (_tensor(2, 6, 4),)),
        {"dynamic_shapes": {"x": {0: "batch"}}},
        lambda: [(_tensor(5, 6, 4),)],
    ),
    "Informer": Kind(lambda: (SparseAttention(), (_tensor(2, 9, 4),)), {}, lambda: [(_tensor(2, 9, 4),)]),
    "Qwen2-VL": Kind(
        lambda: (Modalities(), (_tensor(2, 3), torch.tensor([1, 0]))),
        {},
        lambda: [(_tensor(2, 3), torch.tensor([1, 1]))],
        line="scale = self.scales[number]",
    ),
    "CogVideoX": Kind(
        lambda: (CausalVideo(), (_tensor(1, 2, 5, 4, 4),)), {}, lambda: [(_tensor(1, 2, 5, 4, 4),)]
    ),
}

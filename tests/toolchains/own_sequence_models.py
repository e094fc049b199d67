"""Models of our own for speech, time series and recommendation."""

from __future__ import annotations

import torch
from torch import nn


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers, of which only the sequence is used."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(48, 10)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.lstm(frames)[0])


class Conformer(nn.Module):
    """A block of a speech encoder: half steps, attention, a gated depthwise convolution."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.project = nn.Linear(8 * 3, size)
        self.feeds = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 32), nn.SiLU(), nn.Linear(32, size))
                for _ in "ab"
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(3)])
        self.attention = nn.MultiheadAttention(size, 4, batch_first=True)
        self.gate = nn.Conv1d(size, 2 * size, 1)
        self.depthwise = nn.Conv1d(size, size, 7, padding=3, groups=size)
        self.norm, self.point = nn.BatchNorm1d(size), nn.Conv1d(size, size, 1)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        x = self.subsample(spectrogram.unsqueeze(1))
        x = self.project(x.transpose(1, 2).flatten(2))
        x = x + 0.5 * self.feeds[0](x)
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = nn.functional.glu(self.gate(self.norms[1](x).transpose(1, 2)), 1)
        x = x + self.point(nn.functional.silu(self.norm(self.depthwise(y)))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.feeds[1](x))


class Keywords(nn.Module):
    """Depthwise separable convolutions over a spectrogram, as DS-CNN on microcontrollers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ZeroPad2d((1, 2, 4, 5)), nn.Conv2d(1, 16, (10, 4), 2, bias=False),
            nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 1),
            nn.AvgPool2d((8, 4)), nn.Flatten(), nn.Linear(16 * 3, 12), nn.Softmax(-1),
        )  # fmt: skip

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        return self.layers(spectrogram.unsqueeze(1))


class CausalNetwork(nn.Module):
    """Dilated causal convolutions of sequences with gates and weight normalization, as WaveNet and TCN."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        normalize = nn.utils.parametrizations.weight_norm
        self.first = nn.Conv1d(3, size, 1)
        self.layers = nn.ModuleList(
            [normalize(nn.Conv1d(size, 2 * size, 3, dilation=2**i)) for i in range(3)]
        )
        self.skips = nn.ModuleList([nn.Conv1d(size, size, 1) for _ in range(3)])
        self.last = nn.Conv1d(size, 4, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        x = self.first(series)
        total = torch.zeros_like(x)
        for i, (layer, skip) in enumerate(zip(self.layers, self.skips, strict=True)):
            a, b = layer(nn.functional.pad(x, (2 ** (i + 1), 0))).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.last(nn.functional.elu(total))


class Denoiser(nn.Module):
    """GRU layers that give a mask for a spectrogram, as RNNoise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gru = nn.Linear(16, 12), nn.GRU(12, 16, num_layers=2, batch_first=True)
        self.mask = nn.Linear(16, 16)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames * torch.sigmoid(self.mask(self.gru(torch.tanh(self.first(frames)))[0]))


class Forecaster(nn.Module):
    """An LSTM over the scaled past, whose last state gives the parameters of a distribution, as DeepAR."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 12, batch_first=True)
        self.mean, self.deviation = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        scale = series.abs().mean(1, keepdim=True) + 1e-3
        state = self.lstm(series / scale)[1][0][-1]
        deviation = nn.functional.softplus(self.deviation(state))
        return torch.cat((self.mean(state), deviation), -1) * scale.mean()


class Decomposition(nn.Module):
    """A moving average and linear layers over time, normalized by the input's statistics (DLinear)."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.season = nn.Linear(32, 8), nn.Linear(32, 8)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        mean = series.mean(1, keepdim=True)
        deviation = torch.sqrt(series.var(1, keepdim=True, unbiased=False) + 1e-5)
        x = ((series - mean) / deviation).transpose(1, 2)
        padded = torch.cat((x[..., :1].expand(-1, -1, 2), x, x[..., -1:].expand(-1, -1, 2)), -1)
        trend = nn.functional.avg_pool1d(padded, 5, 1)
        y = self.trend(trend) + self.season(x - trend)
        return y.transpose(1, 2) * deviation + mean


class Factorization(nn.Module):
    """Embeddings of categories, products of pairs, crosses and layers, as DeepFM and DCN."""

    def __init__(self, fields: int = 5, size: int = 4) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * 20)
        self.embedding, self.linear = nn.Embedding(100, size), nn.Embedding(100, 1)
        self.cross = nn.Linear(fields * size, fields * size)
        self.deep = nn.Sequential(nn.Linear(fields * size, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, categories: torch.Tensor) -> torch.Tensor:
        indices = categories + self.offsets
        x = self.embedding(indices)
        pairs = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1, keepdim=True)
        flat = x.flatten(1)
        deep = self.deep(flat * self.cross(flat) + flat)
        return torch.sigmoid(self.linear(indices).sum(1) + pairs + deep)


class Interactions(nn.Module):
    """Dense features and embeddings, whose products of pairs below the diagonal are features, as DLRM."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(6, size), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(30, size) for _ in range(3)])
        self.top = nn.Sequential(nn.Linear(size + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1))

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        vectors = [x, *(table(categories[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(vectors, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat((x, products[:, self.pairs[0], self.pairs[1]]), 1))


class Sequential(nn.Module):
    """The next item of a history: a causal encoder layer of torch, scores of all items, as SASRec."""

    def __init__(self, items: int = 50, size: int = 16) -> None:
        super().__init__()
        self.items, self.positions = nn.Embedding(items, size), nn.Embedding(12, size)
        self.layer = nn.TransformerEncoderLayer(size, 2, 32, batch_first=True, activation="gelu")
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(12))

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        x = self.items(history) * 4.0 + self.positions(torch.arange(12))
        x = self.layer(x, src_mask=self.mask)
        return x[:, -1] @ self.items.weight.t()


class TwoTowers(nn.Module):
    """The cosine of two towers' vectors, one of them over the mean of a history."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(50, 12)
        self.user, self.item = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, history: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        user = nn.functional.normalize(self.user(self.items(history).mean(1)), dim=-1)
        items = nn.functional.normalize(self.item(self.items(candidates)), dim=-1)
        return torch.einsum("bd,bnd->bn", user, items)

"""Models of our own in the style of public code: heads of detectors, images, speech, series and graphs."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional


class AnchorDetection(nn.Module):
    """Three maps with anchors, whose boxes are decoded on grids, as YOLOv5."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stems = nn.ModuleList()
        for inputs, outputs, stride in ((3, 16, 4), (16, 24, 2), (24, 32, 2)):
            layers = (nn.Conv2d(inputs, outputs, 5, stride, 2), nn.BatchNorm2d(outputs), nn.SiLU())
            self.stems.append(nn.Sequential(*layers))
        self.size = 5 + classes
        self.heads = nn.ModuleList([nn.Conv2d(n, 3 * self.size, 1) for n in (16, 24, 32)])
        self.register_buffer("anchors", torch.rand(3, 1, 3, 1, 1, 2) * 16 + 4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x, boxes = pixels, []
        for i, (stem, head) in enumerate(zip(self.stems, self.heads, strict=True)):
            x = stem(x)
            batch, _, height, width = x.shape
            y = head(x).view(batch, 3, self.size, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.arange(height).float(), torch.arange(width).float()
            grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1], 2) - 0.5
            centres, sizes, scores = y.split((2, 2, self.size - 4), 4)
            centres = (centres * 2 + grid) * 4 * 2**i
            sizes = (sizes * 2) ** 2 * self.anchors[i]
            boxes.append(torch.cat((centres, sizes, scores), 4).view(batch, -1, self.size))
        return torch.cat(boxes, 1)


class BestBoxes(nn.Module):
    """Distances as expected values, and the best scores without suppression, as YOLOv10."""

    def __init__(self, classes: int = 4, bins: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 8, 1), nn.BatchNorm2d(16), nn.SiLU())
        self.boxes, self.scores = nn.Conv2d(16, 4 * bins, 1), nn.Conv2d(16, classes, 1)
        self.classes, self.bins = classes, bins

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.stem(pixels)
        bins = torch.arange(self.bins, dtype=torch.float32)
        sides = self.boxes(x).view(-1, 4, self.bins, 64).transpose(1, 2).softmax(1)
        sides = functional.conv2d(sides, bins.view(1, self.bins, 1, 1)).view(-1, 4, 64)
        steps = torch.arange(8, dtype=torch.float32) + 0.5
        rows, columns = torch.meshgrid(steps, steps, indexing="ij")
        centres = torch.stack((columns, rows)).view(1, 2, 64)
        corners = torch.cat((centres - sides[:, :2], centres + sides[:, 2:]), 1) * 8
        scores = self.scores(x).flatten(2).sigmoid().transpose(1, 2)
        best = torch.topk(scores.amax(-1), 12, dim=-1)[1].unsqueeze(-1)
        boxes = corners.transpose(1, 2).gather(1, best.expand(-1, -1, 4))
        values, order = torch.topk(scores.gather(1, best.expand(-1, -1, self.classes)).flatten(1), 12, dim=-1)
        rows_of_boxes = torch.div(order, self.classes, rounding_mode="floor").unsqueeze(-1)
        return boxes.gather(1, rows_of_boxes.expand(-1, -1, 4)), values, order % self.classes


class CentreDetection(nn.Module):
    """Normalized groups, a learned scale of each level and centredness, as FCOS; three results."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 32, 3, 4, 1), nn.Conv2d(32, 32, 3, 2, 1)
        layers = [nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU()]
        self.classes_tower, self.boxes_tower = (
            nn.Sequential(*layers),
            nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU()),
        )
        self.classes, self.boxes = nn.Conv2d(32, 5, 3, padding=1), nn.Conv2d(32, 4, 3, padding=1)
        self.centredness = nn.Conv2d(32, 1, 3, padding=1)
        self.scales = nn.Parameter(torch.tensor([1.0, 1.5]))

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        first = functional.relu(self.stem(pixels))
        classes, boxes, centredness = [], [], []
        for level, x in enumerate((first, self.down(first))):
            side = self.boxes_tower(x)
            classes.append(self.classes(self.classes_tower(x)).flatten(2).transpose(1, 2))
            distances = functional.relu(self.boxes(side) * self.scales[level]) * 4 * 2**level
            boxes.append(distances.flatten(2).transpose(1, 2))
            centredness.append(self.centredness(side).flatten(2).transpose(1, 2))
        return torch.cat(classes, 1), torch.cat(boxes, 1), torch.cat(centredness, 1)


class ShuffleUNet(nn.Module):
    """Pixels become channels on the way down, and channels pixels on the way up; gates on the skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(8))
        self.second = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True))
        self.middle = nn.Sequential(nn.Conv2d(64, 64, 3, padding=2, dilation=2), nn.LeakyReLU(0.2))
        self.gate = nn.Conv2d(16, 16, 1)
        self.up, self.last = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        a = self.first(pixels)
        b = functional.gelu(self.second(functional.pixel_unshuffle(a, 2)))
        c = functional.pixel_shuffle(self.middle(functional.pixel_unshuffle(b, 2)), 2)
        c = torch.cat((c, b * torch.sigmoid(self.gate(b))), 1)
        d = functional.pixel_shuffle(self.up(c), 2)
        return pixels + torch.tanh(self.last(torch.cat((d, a), 1)))


class BidirectionalText(nn.Module):
    """Columns of a text line through two layers of bidirectional LSTM, as CRNN of public code."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2),
            nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(True),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)), nn.Conv2d(24, 32, (8, 2)), nn.ReLU(True),
        )  # fmt: skip
        self.lstm = nn.LSTM(32, 16, num_layers=2, bidirectional=True)
        self.last = nn.Linear(32, 11)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        x = self.layers(line).squeeze(2).permute(2, 0, 1)
        x, _ = self.lstm(x)
        steps, batch, size = x.size()
        return functional.log_softmax(self.last(x.view(steps * batch, size)).view(steps, batch, -1), 2)


class SpeechConvolutions(nn.Module):
    """Strided convolutions of a waveform with normalized groups, and positions by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 16, 10, 5, bias=False), nn.GroupNorm(16, 16)
        self.others = nn.ModuleList([nn.Conv1d(16, 16, 3, 2, bias=False) for _ in range(2)])
        self.project_norm, self.project = nn.LayerNorm(16), nn.Linear(16, 24)
        convolution = nn.Conv1d(24, 24, 8, padding=4, groups=4)
        self.positions = nn.utils.parametrizations.weight_norm(convolution, dim=2)
        self.last = nn.LayerNorm(24)

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        waveform = (waveform - waveform.mean(-1, keepdim=True)) / (waveform.std(-1, keepdim=True) + 1e-5)
        x = functional.gelu(self.norm(self.first(waveform.unsqueeze(1))))
        for layer in self.others:
            x = functional.gelu(layer(x))
        x = self.project(self.project_norm(x.transpose(1, 2)))
        y = functional.gelu(self.positions(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2)
        return self.last(x + y)


class TemporalNetwork(nn.Module):
    """Dilated convolutions whose surplus at the end is cut off, residual; the last step is classified."""

    def __init__(self) -> None:
        super().__init__()
        normalize = nn.utils.parametrizations.weight_norm
        sizes = (4, 12, 12, 8)
        self.first, self.second, self.shortcut = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            options = {"padding": 2 * 2**i, "dilation": 2**i}
            self.first.append(normalize(nn.Conv1d(a, b, 3, **options)))
            self.second.append(normalize(nn.Conv1d(b, b, 3, **options)))
            self.shortcut.append(nn.Conv1d(a, b, 1) if a != b else nn.Identity())
        self.last = nn.Linear(8, 5)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        x = series
        for first, second, shortcut in zip(self.first, self.second, self.shortcut, strict=True):
            length = x.shape[-1]
            y = functional.relu(first(x)[:, :, :length].contiguous())
            y = functional.relu(second(y)[:, :, :length].contiguous())
            x = functional.relu(y + shortcut(x))
        return self.last(x[:, :, -1])


class Residuals(nn.Module):
    """Blocks that subtract what they explain of a series, and add forecasts, as N-BEATS."""

    def __init__(self, past: int = 20, future: int = 5) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for size in (6, 8, past + future):
            block = nn.Sequential(nn.Linear(past, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            self.blocks.append(nn.Sequential(block, nn.Linear(32, size, bias=False)))
        steps = torch.arange(past + future, dtype=torch.float32) / (past + future)
        waves = [torch.cos(6.2832 * k * steps) for k in range(4)]
        waves += [torch.sin(6.2832 * k * steps) for k in range(4)]
        self.register_buffer("trend", torch.stack([steps**power for power in range(6)]))
        self.register_buffer("season", torch.stack(waves))
        self.past = past

    def forward(self, series: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rest, forecast = series, series[:, -1:]
        for block, basis in zip(self.blocks, (self.trend, self.season, None), strict=True):
            theta = block(rest)
            both = theta if basis is None else torch.einsum("bp,pt->bt", theta, basis)
            rest = rest - both[:, : self.past]
            forecast = forecast + both[:, self.past :]
        return forecast, rest


class DeepSuperResolution(nn.Module):
    """Residual blocks with small factors between shifts of the mean, and channels to pixels by 3, as EDSR."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.4]).view(1, 3, 1, 1))
        self.head = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1))
                for _ in range(3)
            ]
        )
        self.body = nn.Conv2d(16, 16, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(16, 144, 3, padding=1), nn.PixelShuffle(3), nn.Conv2d(16, 3, 3, padding=1)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.head(pixels - self.mean)
        y = x
        for block in self.blocks:
            y = y + block(y).mul(0.1)
        large = functional.interpolate(pixels, scale_factor=3, mode="bicubic", align_corners=False)
        return (self.tail(x + self.body(y)) + self.mean + large).clamp(0, 1)


class ModulatedConvolution(nn.Module):
    """Weights that a style scales and normalizes, in a convolution of groups, with noise, as StyleGAN 2."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.mapping = nn.Sequential(
            nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.LeakyReLU(0.2)
        )
        self.constant = nn.Parameter(torch.randn(1, size, 4, 4))
        self.styles = nn.ModuleList([nn.Linear(16, size) for _ in range(2)])
        self.weights = nn.ParameterList([torch.randn(size, size, 3, 3) for _ in range(2)])
        self.noise = nn.Parameter(torch.randn(1, 1, 8, 8))
        self.colours = nn.Conv2d(size, 3, 1)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        latent = latent * torch.rsqrt(latent.pow(2).mean(1, keepdim=True) + 1e-8)
        style = self.mapping(latent)
        x = self.constant.repeat(latent.shape[0], 1, 1, 1)
        for i, (layer, weight) in enumerate(zip(self.styles, self.weights, strict=True)):
            batch, size, height, width = x.shape
            kernel = weight.unsqueeze(0) * (layer(style) + 1).view(batch, 1, size, 1, 1)
            kernel = kernel * torch.rsqrt(kernel.pow(2).sum((2, 3, 4)) + 1e-8).view(batch, size, 1, 1, 1)
            x = x.reshape(1, batch * size, height, width)
            x = functional.conv2d(x, kernel.view(batch * size, size, 3, 3), padding=1, groups=batch)
            x = x.view(batch, size, height, width)
            if i == 0:
                x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                x = x + 0.1 * self.noise
            x = functional.leaky_relu(x, 0.2) * 1.4142
        return self.colours(x)


class GraphConvolution(nn.Module):
    """Messages along edges that are gathered and added up by node, and a mean of all nodes (GIN, GCN)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 16)
        self.edges, self.last = nn.Linear(3, 16), nn.Linear(16, 4)

    def forward(
        self, nodes: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor, features: torch.Tensor
    ) -> torch.Tensor:
        x = functional.relu(self.first(nodes))
        weights = torch.sigmoid(self.edges(features))
        messages = x.index_select(0, sources) * weights
        total = torch.zeros_like(x).index_add(0, destinations, messages)
        degree = torch.zeros(x.shape[0]).index_add(0, destinations, torch.ones(destinations.shape[0]))
        x = functional.relu(self.second(x + total / degree.clamp(min=1).unsqueeze(1)))
        return torch.cat((self.last(x), self.last(x.mean(0, keepdim=True))), 0)

"""Models of our own: what the field deploys and neither timm nor transformers has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from . import own_field_models as field
from . import own_sequence_models as sequences

Case = tuple[nn.Module, dict[str, torch.Tensor]]
"""A model and its inputs by name."""


def _convolution(inputs: int, outputs: int, activation: nn.Module, **options: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False, **options), nn.BatchNorm2d(outputs), activation
    )


class Residual(nn.Module):
    """A residual network: two blocks, one of them with a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(3, 16, nn.ReLU(), stride=2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.first = nn.Sequential(_convolution(16, 16, nn.ReLU()), _convolution(16, 16, nn.Identity()))
        self.second = nn.Sequential(
            _convolution(16, 32, nn.ReLU(), stride=2), _convolution(32, 32, nn.Identity())
        )
        self.projection = nn.Sequential(nn.Conv2d(16, 32, 1, stride=2, bias=False), nn.BatchNorm2d(32))
        self.classifier = nn.Linear(32, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(pixels))
        x = torch.relu(x + self.first(x))
        x = torch.relu(self.projection(x) + self.second(x))
        return self.classifier(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Inverted(nn.Module):
    """An inverted residual network; with squeeze and excitation as in MobileNetV3 and EfficientNet."""

    def __init__(self, activation: Callable[[], nn.Module], gate: Callable[[], nn.Module] | None) -> None:
        super().__init__()
        self.stem = _convolution(3, 8, activation(), stride=2)
        self.expand = nn.Sequential(nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32), activation())
        self.depthwise = _convolution(32, 32, activation(), groups=32)
        self.excitation = gate and nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 8, 1), nn.ReLU(), nn.Conv2d(8, 32, 1), gate()
        )
        self.project = nn.Sequential(nn.Conv2d(32, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 10))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.stem(pixels)
        y = self.depthwise(self.expand(x))
        if self.excitation is not None:
            y = y * self.excitation(y)
        return self.classifier((x + self.project(y)).mean((2, 3)))


class Detection(nn.Module):
    """A detector with three scales, whose boxes are offsets from grid cells and anchors, as in YOLOv5."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.outputs = classes + 5
        self.stem = _convolution(3, 8, nn.SiLU(), stride=2)
        self.scales = nn.ModuleList([_convolution(8, 8, nn.SiLU(), stride=2) for _ in range(3)])
        self.heads = nn.ModuleList([nn.Conv2d(8, 3 * self.outputs, 1) for _ in range(3)])
        self.register_buffer("anchors", torch.rand(3, 3, 2) + 0.5)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x, found = self.stem(pixels), []
        for i, (scale, head) in enumerate(zip(self.scales, self.heads, strict=True)):
            x = scale(x)
            y = head(x)
            batch, _, height, width = y.shape
            y = y.view(batch, 3, self.outputs, height, width).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((columns, rows), 2).expand(1, 3, height, width, 2).float() - 0.5
            anchors = (self.anchors[i] * 4.0).view(1, 3, 1, 1, 2)
            center, size, rest = y.split((2, 2, self.outputs - 4), 4)
            y = torch.cat(((center * 2 + grid) * 2.0 ** (i + 2), (size * 2) ** 2 * anchors, rest), 4)
            found.append(y.view(batch, -1, self.outputs))
        return torch.cat(found, 1)


class Segmentation(nn.Module):
    """Dilated convolutions, pooled context, and bilinear upsampling to the input's size, as in DeepLabV3."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(3, 16, nn.ReLU(), stride=4)
        rates = [nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)]
        self.branches = nn.ModuleList(rates)
        self.context = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
        self.classifier = nn.Conv2d(32, 5, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.stem(pixels)
        context = nn.functional.interpolate(
            self.context(x), size=x.shape[-2:], mode="bilinear", align_corners=False
        )
        y = self.classifier(torch.cat([*(torch.relu(b(x)) for b in self.branches), context], 1))
        return nn.functional.interpolate(y, size=pixels.shape[-2:], mode="bilinear", align_corners=False)


class Integrals(nn.Module):
    """A head without anchors, whose sides are expectations over bins, as YOLOv8's."""

    def __init__(self, classes: int = 4, bins: int = 8) -> None:
        super().__init__()
        self.bins, self.classes = bins, classes
        self.stem = _convolution(3, 8, nn.SiLU(), stride=2)
        self.split = nn.Conv2d(8, 16, 1)
        self.bottleneck = _convolution(8, 8, nn.SiLU())
        self.merge = nn.Conv2d(24, 16, 1)
        self.scales = nn.ModuleList([_convolution(16, 16, nn.SiLU(), stride=2) for _ in range(2)])
        self.boxes = nn.ModuleList([nn.Conv2d(16, 4 * bins, 1) for _ in range(2)])
        self.labels = nn.ModuleList([nn.Conv2d(16, classes, 1) for _ in range(2)])
        self.expectation = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        with torch.no_grad():
            self.expectation.weight.copy_(torch.arange(bins).view(1, bins, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.split(self.stem(pixels))
        first, second = x.chunk(2, 1)
        x = self.merge(torch.cat((first, second, self.bottleneck(second)), 1))
        rows, anchors, strides = [], [], []
        for i, (scale, box, label) in enumerate(zip(self.scales, self.boxes, self.labels, strict=True)):
            x = scale(x)
            y = torch.cat((box(x), label(x)), 1)
            height, width = y.shape[-2:]
            ys, xs = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            anchors.append(torch.stack((xs, ys), -1).view(-1, 2))
            strides.append(torch.full((height * width, 1), 4.0 * 2**i))
            rows.append(y.view(y.shape[0], 4 * self.bins + self.classes, -1))
        y, points, stride = torch.cat(rows, 2), torch.cat(anchors).t(), torch.cat(strides).t()
        box, label = y.split((4 * self.bins, self.classes), 1)
        batch, _, cells = box.shape
        bins = box.view(batch, 4, self.bins, cells).transpose(2, 1).softmax(1)
        left, right = self.expectation(bins).view(batch, 4, cells).chunk(2, 1)
        low, high = points.unsqueeze(0) - left, points.unsqueeze(0) + right
        return torch.cat((torch.cat(((low + high) / 2, high - low), 1) * stride, label.sigmoid()), 1)


class AreaAttention(nn.Module):
    """Attention between the pixels of a map with a depthwise position term, as YOLO11's C2PSA."""

    def __init__(self, channels: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.size = heads, channels // heads
        self.stem = _convolution(3, channels, nn.SiLU(), stride=4)
        self.qkv = nn.Conv2d(channels, channels * 2, 1)
        self.position = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.projection = nn.Conv2d(channels, channels, 1)
        self.classifier = nn.Conv2d(channels, 5, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.stem(pixels)
        batch, channels, height, width = x.shape
        half = self.size // 2
        qkv = self.qkv(x).view(batch, self.heads, self.size * 2, height * width)
        q, k, v = qkv.split((half, half, self.size), 2)
        weights = ((q.transpose(-2, -1) @ k) * half**-0.5).softmax(-1)
        y = (v @ weights.transpose(-2, -1)).view(batch, channels, height, width)
        y = y + self.position(v.reshape(batch, channels, height, width))
        return self.classifier(x + self.projection(y))


class UNet(nn.Module):
    """Encoder and decoder with skips: transposed convolution, nearest upsampling, group normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _convolution(3, 8, nn.ReLU()), _convolution(8, 16, nn.LeakyReLU(0.1))
        self.middle = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.joined = _convolution(32, 8, nn.ReLU())
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        first = self.first(pixels)
        second = self.second(nn.functional.max_pool2d(first, 2))
        middle = self.middle(nn.functional.avg_pool2d(second, 2))
        x = self.joined(torch.cat((self.up(middle), second), 1))
        x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
        return self.last(torch.cat((x, first), 1))


class SuperResolution(nn.Module):
    """Parametric ReLU and sub-pixel convolution, as ESPCN, over an upsampled image."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(16), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        upsampled = nn.functional.interpolate(pixels, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.clamp(self.layers(pixels) + upsampled, -1.0, 1.0)


class StyleTransfer(nn.Module):
    """Reflection padding and instance normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(16, 3, 3),
        )  # fmt: skip

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.layers(pixels))


class Heatmaps(nn.Module):
    """Key points as the expectations of heat maps, as in pose estimation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(3, 16, nn.ReLU(), stride=4)
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.maps = nn.Conv2d(8, 5, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        maps = 20.0 * self.maps(torch.relu(self.up(self.stem(pixels))))
        batch, points, height, width = maps.shape
        weights = maps.flatten(2).softmax(-1).view(batch, points, height, width)
        x = (weights.sum(2) * torch.linspace(0, 1, width)).sum(-1)
        y = (weights.sum(3) * torch.linspace(0, 1, height)).sum(-1)
        return torch.stack((x, y), -1)


class TextRecognition(nn.Module):
    """Convolutions whose columns are the steps of a bidirectional LSTM, as CRNN."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _convolution(3, 8, nn.ReLU()), nn.MaxPool2d(2), _convolution(8, 16, nn.ReLU()),
            nn.MaxPool2d((4, 2)), nn.Conv2d(16, 16, (8, 1)),
        )  # fmt: skip
        self.lstm = nn.LSTM(16, 12, bidirectional=True)
        self.classifier = nn.Linear(24, 11)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        columns = self.features(pixels).squeeze(2).permute(2, 0, 1)
        return self.classifier(self.lstm(columns)[0]).log_softmax(-1)


class PointNet(nn.Module):
    """A set of points: shared layers, a learned transform, a maximum over the points."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.features = nn.Sequential(nn.Conv1d(3, 24, 1), nn.BatchNorm1d(24), nn.ReLU())
        self.classifier = nn.Linear(24, 10)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        matrix = self.matrix(self.transform(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        moved = torch.bmm(points.transpose(1, 2), matrix).transpose(1, 2)
        return self.classifier(self.features(moved).max(2)[0])


def _pixels(size: int = 64) -> dict[str, torch.Tensor]:
    return {"pixels": torch.randn(1, 3, size, size)}


def _items(high: int, count: int) -> torch.Tensor:
    return torch.randint(1, high, (1, count))


def _graph() -> dict[str, torch.Tensor]:
    sources, destinations = torch.randint(0, 9, (2, 20))
    edges = {"sources": sources, "destinations": destinations, "features": torch.randn(20, 3)}
    return {"nodes": torch.randn(9, 6), **edges}


OWN: dict[str, Callable[[], Case]] = {
    "ResNet": lambda: (Residual(), _pixels()),
    "MobileNetV2": lambda: (Inverted(nn.ReLU6, None), _pixels()),
    "MobileNetV3": lambda: (Inverted(nn.Hardswish, nn.Hardsigmoid), _pixels()),
    "EfficientNet": lambda: (Inverted(nn.SiLU, nn.Sigmoid), _pixels()),
    "LSTM": lambda: (sequences.Recurrent(), {"frames": torch.randn(1, 12, 16)}),
    "YOLO head": lambda: (Detection(), _pixels()),
    "YOLOv8 head": lambda: (Integrals(), _pixels()),
    "YOLO11 attention": lambda: (AreaAttention(), _pixels()),
    "DeepLabV3": lambda: (Segmentation(), _pixels()),
    "UNet": lambda: (UNet(), _pixels(32)),
    "ESPCN": lambda: (SuperResolution(), _pixels(24)),
    "Style transfer": lambda: (StyleTransfer(), _pixels(32)),
    "Heat maps": lambda: (Heatmaps(), _pixels()),
    "CRNN": lambda: (TextRecognition(), {"pixels": torch.randn(1, 3, 64, 64)}),
    "PointNet": lambda: (PointNet(), {"points": torch.randn(1, 3, 40)}),
    "Conformer": lambda: (sequences.Conformer(), {"spectrogram": torch.randn(1, 40, 16)}),
    "DS-CNN": lambda: (sequences.Keywords(), {"spectrogram": torch.randn(1, 49, 10)}),
    "WaveNet": lambda: (sequences.CausalNetwork(), {"series": torch.randn(1, 3, 24)}),
    "RNNoise": lambda: (sequences.Denoiser(), {"frames": torch.randn(1, 10, 16)}),
    "DeepAR": lambda: (sequences.Forecaster(), {"series": torch.randn(1, 20, 3)}),
    "DLinear": lambda: (sequences.Decomposition(), {"series": torch.randn(1, 32, 3)}),
    "DeepFM": lambda: (sequences.Factorization(), {"categories": _items(20, 5)}),
    "DLRM": lambda: (sequences.Interactions(), {"dense": torch.randn(1, 6), "categories": _items(30, 3)}),
    "SASRec": lambda: (sequences.Sequential(), {"history": _items(50, 12)}),
    "Two towers": lambda: (sequences.TwoTowers(), {"history": _items(50, 12), "candidates": _items(50, 7)}),
    "YOLOv5 head": lambda: (field.AnchorDetection(), _pixels()),
    "YOLOv10 head": lambda: (field.BestBoxes(), _pixels()),
    "FCOS head": lambda: (field.CentreDetection(), _pixels()),
    "Shuffle U-Net": lambda: (field.ShuffleUNet(), _pixels(32)),
    "CRNN, two LSTM layers": lambda: (field.BidirectionalText(), {"line": torch.randn(1, 1, 32, 40)}),
    "Speech convolutions": lambda: (field.SpeechConvolutions(), {"waveform": torch.randn(1, 800)}),
    "TCN": lambda: (field.TemporalNetwork(), {"series": torch.randn(1, 4, 24)}),
    "N-BEATS": lambda: (field.Residuals(), {"series": torch.randn(1, 20)}),
    "EDSR": lambda: (field.DeepSuperResolution(), _pixels(16)),
    "StyleGAN 2": lambda: (field.ModulatedConvolution(), {"latent": torch.randn(1, 16)}),
    "Graph convolution": lambda: (field.GraphConvolution(), _graph()),
}
"""Our own models."""

"""Models in plain PyTorch that `torch.jit.script` takes, small widths, with random weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

VOCABULARY = 30


class BasicBlock(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        x = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(identity)
        x += identity
        return self.relu(x)


class ResNet18(nn.Module):
    """The residual network of 18 layers."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks = []
        for stage in range(4):
            for index in range(2):
                outer = width * 2**stage
                inner = outer if index or not stage else outer // 2
                blocks.append(BasicBlock(inner, outer, 2 if stage and not index else 1))
        self.layers = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 8, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.avgpool(self.layers(self.stem(image)))
        return self.fc(torch.flatten(x, 1))


class InvertedResidual(nn.Module):
    """Widened, filtered channel by channel, and narrowed again."""

    def __init__(self, inner: int, outer: int, stride: int, factor: int):
        super().__init__()
        hidden = inner * factor
        self.use_residual = stride == 1 and inner == outer
        self.conv = nn.Sequential(
            nn.Conv2d(inner, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_residual else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals, a dropout that evaluation removes, and a mean over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(inplace=True),
            InvertedResidual(8, 8, 1, 1),
            InvertedResidual(8, 12, 2, 6),
            InvertedResidual(12, 12, 1, 6),
            InvertedResidual(12, 16, 2, 6),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 10))

    def forward(self, image: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.features(image), (1, 1))
        return self.classifier(torch.flatten(x, 1))


class UNet(nn.Module):
    """Down and up again, each level beside its twin: a list of tensors, sizes read from them."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 4, 8, 16]
        self.down = nn.ModuleList([self._pair(a, b) for a, b in itertools.pairwise(widths)])
        self.up = nn.ModuleList(
            [self._pair(a + b, b) for a, b in ((16, 16), (16, 8), (8, 4))],
        )
        self.transposed = nn.ConvTranspose2d(16, 16, 2, 2)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(4, 2, 1)

    @staticmethod
    def _pair(inner: int, outer: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(2, outer), nn.SiLU(inplace=True)
        )

    def forward(self, image: Tensor) -> Tensor:
        skipped: list[Tensor] = []
        x = image
        for level in self.down:
            x = level(x)
            skipped.append(x)
            x = self.pool(x)
        x = self.transposed(x)
        for index, level in enumerate(self.up):
            skip = skipped[len(skipped) - 1 - index]
            if x.shape[-2:] != skip.shape[-2:]:
                x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([x, skip], dim=1))
        return self.head(x)


class ConvNeXtBlock(nn.Module):
    """A large convolution, then layer normalization over the channels, which stand last."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """A patch stem and blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(*[ConvNeXtBlock(8) for _ in range(3)])
        self.head = nn.Linear(8, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(image)).mean([-2, -1]))


class ViT(nn.Module):
    """Patches, a class token and torch's own transformer encoder, which has a fused kernel for inference."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 17, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class TextEncoder(nn.Module):
    """Tokens with a padding mask through torch's own transformer encoder, and an attention of its own."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(self.embedding(tokens), src_key_padding_mask=mask)
        found, weights = self.attention(x, x, x, key_padding_mask=mask, need_weights=True)
        assert weights is not None
        return found, weights


class Tagger(nn.Module):
    """A bidirectional LSTM over tokens, and the best tag of each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = self.lstm(self.embedding(tokens))
        scores = self.head(x).log_softmax(-1)
        return scores, scores.argmax(-1)


class Translator(nn.Module):
    """A GRU encoder, and a greedy decoder that stops when every sentence has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.encoder = nn.GRU(8, 8, batch_first=True)
        self.cell = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        _, state = self.encoder(self.embedding(tokens))
        hidden = state[0]
        token = torch.ones(tokens.size(0), dtype=torch.int64)
        ended = torch.zeros(tokens.size(0), dtype=torch.bool)
        written: list[Tensor] = []
        step = 0
        while step < limit and not bool(ended.all()):
            hidden = self.cell(self.embedding(token), hidden)
            token = self.head(hidden).argmax(-1)
            token = torch.where(ended, torch.zeros_like(token), token)
            ended = ended | (token % 3 == 0)
            written.append(token)
            step += 1
        return torch.stack(written, 1), hidden


class Synthesizer(nn.Module):
    """A decoder of frames with an attention that remembers where it was, as speech synthesis has it."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5))
        self.cell = nn.LSTMCell(6 + 8, 8)
        self.query = nn.Linear(8, 8, bias=False)
        self.location = nn.Conv1d(2, 8, 3, padding=1)
        self.energy = nn.Linear(8, 1)
        self.frame = nn.Linear(16, 4)
        self.gate = nn.Linear(16, 1)

    def forward(self, memory: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        batch, length = memory.size(0), memory.size(1)
        hidden = memory.new_zeros(batch, 8)
        cell = memory.new_zeros(batch, 8)
        weights = memory.new_zeros(batch, length)
        total = memory.new_zeros(batch, length)
        context = memory.new_zeros(batch, 8)
        frame = memory.new_zeros(batch, 4)
        frames: list[Tensor] = []
        gates: list[Tensor] = []
        attended: list[Tensor] = []
        for _ in range(steps):
            given = torch.cat([self.prenet(frame), context], -1)
            hidden, cell = self.cell(given, (hidden, cell))
            where = self.location(torch.stack([weights, total], 1)).transpose(1, 2)
            energies = self.energy(torch.tanh(self.query(hidden).unsqueeze(1) + where + memory)).squeeze(-1)
            weights = energies.softmax(-1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            both = torch.cat([hidden, context], -1)
            frame = self.frame(both)
            frames.append(frame)
            gates.append(self.gate(both).squeeze(-1))
            attended.append(weights)
            if bool((torch.sigmoid(gates[-1]) > 0.9).all()):
                break
        return torch.stack(frames, 1), torch.stack(gates, 1), torch.stack(attended, 1)


@dataclasses.dataclass(frozen=True)
class Scriptable:
    """One model and the calls it takes.

    Attributes:
        inputs: positional arguments for a batch size and a length.
        dynamic_shapes: of each parameter.
        convolutional: whether opsets 7 and 8 are asked of it too.
        loops: whether it has a loop of a number of steps that a trace would fix.
        sizes: of the calls to compare, (batch, length).
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple]
    dynamic_shapes: dict
    convolutional: bool = False
    loops: bool = False
    sizes: tuple[tuple[int, int], ...] = ((3, 5), (1, 1))


def _images(batch: int, length: int) -> tuple:
    return (torch.randn(batch, 3, 32, 32),)


def _resized(batch: int, length: int) -> tuple:
    return (torch.randn(batch, 3, 8 * length, 16),)


def _tokens(batch: int, length: int) -> tuple:
    return (torch.randint(1, VOCABULARY, (batch, length)),)


def _masked(batch: int, length: int) -> tuple:
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[0, (length + 1) // 2 :] = length > 1
    return (*_tokens(batch, length), mask)


def _limited(batch: int, length: int) -> tuple:
    return (*_tokens(batch, length), length)


def _memory(batch: int, length: int) -> tuple:
    return torch.randn(batch, length, 8), length + 1


_IMAGE = {"image": {0: "batch"}}
_TEXT = {0: "batch", 1: "sequence"}


def _with_norm_first() -> nn.Module:
    return TextEncoder(norm_first=True)


SCRIPTABLE = (
    Scriptable("resnet18", ResNet18, _images, _IMAGE, convolutional=True),
    Scriptable("mobilenetv2", MobileNetV2, _images, _IMAGE, convolutional=True),
    Scriptable("unet", UNet, _resized, {"image": {0: "batch", 2: "height"}}, sizes=((3, 4), (1, 1))),
    Scriptable("convnext", ConvNeXt, _images, _IMAGE, convolutional=True),
    Scriptable("vit", ViT, _images, _IMAGE),
    Scriptable("encoder", TextEncoder, _masked, {"tokens": _TEXT, "mask": _TEXT}),
    Scriptable("encoder-norm-first", _with_norm_first, _masked, {"tokens": _TEXT, "mask": _TEXT}),
    Scriptable("tagger", Tagger, _tokens, {"tokens": _TEXT}),
    Scriptable("translator", Translator, _limited, {"tokens": _TEXT, "limit": None}, loops=True),
    Scriptable("synthesizer", Synthesizer, _memory, {"memory": _TEXT, "steps": None}, loops=True),
)

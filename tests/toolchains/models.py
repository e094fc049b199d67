"""Small models of the architectures that people deploy, in PyTorch and transformers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..trained_weights import FirstTensor, spread_weights

Case = tuple[nn.Module, dict[str, torch.Tensor]]
_TEXT = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
_HEADS = {"num_attention_heads": 4}


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


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers, of which only the sequence is used."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(48, 10)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.lstm(frames)[0])


class Detection(nn.Module):
    """A detector's head of three scales, which decodes boxes by anchors and cells as YOLOv5 does."""

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


def _pixels(size: int = 64) -> dict[str, torch.Tensor]:
    return {"pixels": torch.randn(1, 3, size, size)}


def _transformer(architecture: str, configuration: str, inputs: str, **options: object) -> Callable[[], Case]:
    """A model of transformers that reads images, tokens, or tokens and their mask."""

    def build() -> Case:
        import transformers

        config = getattr(transformers, configuration)(**options)
        config.use_cache = False
        tokens = torch.randint(3, 100, (1, 16))
        feeds = {
            "images": {"pixel_values": torch.randn(1, 3, 64, 64)},
            "tokens": {"input_ids": tokens},
            "masked": {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        }
        feed = feeds[inputs]
        return FirstTensor(getattr(transformers, architecture)(config), list(feed)), feed

    return build


MODELS: dict[str, Callable[[], Case]] = {
    "ResNet": lambda: (Residual(), _pixels()),
    "MobileNetV2": lambda: (Inverted(nn.ReLU6, None), _pixels()),
    "MobileNetV3": lambda: (Inverted(nn.Hardswish, nn.Hardsigmoid), _pixels()),
    "EfficientNet": lambda: (Inverted(nn.SiLU, nn.Sigmoid), _pixels()),
    "ConvNeXt": _transformer(
        "ConvNextForImageClassification", "ConvNextConfig", "images", depths=[1, 1], hidden_sizes=[8, 16],
        num_stages=2,
    ),
    "ViT": _transformer(
        "ViTForImageClassification", "ViTConfig", "images", image_size=64, num_hidden_layers=2,
        hidden_size=32, intermediate_size=64, **_HEADS,
    ),
    "Swin": _transformer(
        "SwinForImageClassification", "SwinConfig", "images", image_size=64, depths=[2, 2], embed_dim=16,
        num_heads=[2, 4], window_size=4,
    ),
    "BERT": _transformer("BertModel", "BertConfig", "masked", **_TEXT, **_HEADS),
    "GPT-2": _transformer(
        "GPT2LMHeadModel", "GPT2Config", "tokens", vocab_size=100, n_layer=2, n_embd=32, n_head=4
    ),
    "Llama": _transformer(
        "LlamaForCausalLM", "LlamaConfig", "tokens", **_TEXT, **_HEADS, num_key_value_heads=2
    ),
    "T5 encoder": _transformer(
        "T5EncoderModel", "T5Config", "masked", vocab_size=100, d_model=32, num_layers=2, d_ff=64,
        num_heads=4, d_kv=8,
    ),
    "LSTM": lambda: (Recurrent(), {"frames": torch.randn(1, 12, 16)}),
    "YOLO head": lambda: (Detection(), _pixels()),
    "DeepLabV3": lambda: (Segmentation(), _pixels()),
}  # fmt: skip


def build(name: str) -> Case:
    """A model in evaluation mode, with weights and statistics like those of a trained one."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    spread_weights(model, 0.05)
    return model.eval(), inputs

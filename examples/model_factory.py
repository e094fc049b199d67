"""Factories for the command line: functions that return a model and its example arguments.

    opsetta export examples/model_factory.py:classifier --opset 12 -o classifier.onnx --verify
    opsetta verify classifier.onnx examples/model_factory.py:classifier
    opsetta export examples/model_factory.py:clipped --symbolics examples/custom_symbolic.py -o clipped.onnx

A factory gives the same model every time it is called.
"""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes: int = 10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(16, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).flatten(1))


def pair():
    """The short form: the model and its arguments."""
    return Classifier().eval(), (torch.randn(1, 3, 16, 16),)


def classifier():
    """The long form: a dict, with options of `opsetta.export` beside the model and its arguments."""
    return {
        "model": Classifier().eval(),
        "args": (torch.randn(2, 3, 16, 16),),
        "dynamic_shapes": {"image": {0: torch.export.Dim("batch")}},
        "input_names": ["image"],
        "output_names": ["logits"],
    }


@torch.library.custom_op("example::soft_clip", mutates_args=())
def soft_clip(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    """An operator of a library's own, which no exporter knows: limit * tanh(x / limit)."""
    return limit * torch.tanh(x / limit)


@soft_clip.register_fake
def _(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


class Clipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return soft_clip(self.linear(x), 2.0)


def clipped():
    """A model with an operator that `custom_symbolic.py` gives a meaning."""
    return Clipped().eval(), (torch.randn(2, 4),)

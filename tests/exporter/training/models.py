"""Small models to train, each with example arguments and targets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 8)
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(nn.functional.gelu(self.second(self.first(x).relu()))))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(4, 6, 3, stride=2, groups=2),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(6 * 2 * 2, 5),
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 5)

    def forward(self, x):
        return self.last(self.layer(x)[0][:, -1])


class Block(nn.Module):
    """Attention and a feed-forward network. A bias of the keys would have no gradient but rounding."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        normed = self.before(x)
        parts = [
            each(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        ]
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(5, 8) * 0.1)
        self.blocks = nn.Sequential(*(Block(8, 2) for _ in range(4)))
        self.last = nn.Linear(8, 11)

    def forward(self, x):
        return self.last(self.blocks(self.tokens(x) + self.places)).transpose(1, 2)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model to train.

    Attributes:
        name: the test's name.
        build: makes the model.
        inputs, targets: make example tensors for a batch size.
        dynamic: the dynamic shapes of the batch.
    """

    name: str
    build: Callable[[], nn.Module]
    loss: nn.Module
    inputs: Callable[[int], torch.Tensor]
    targets: Callable[[int], torch.Tensor]
    argument: str = "x"

    @property
    def dynamic(self) -> dict[str, Any]:
        return {self.argument: {0: "batch"}, "targets": {0: "batch"}}

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build().train()


CASES = [
    Case("mlp", Perceptron, nn.MSELoss(), lambda n: torch.randn(n, 6), lambda n: torch.randn(n, 3)),
    Case(
        "cnn",
        convolutional,
        nn.CrossEntropyLoss(),
        lambda n: torch.randn(n, 3, 18, 18),
        lambda n: torch.randint(0, 5, (n,)),
        "input",
    ),
    Case(
        "lstm",
        Recurrent,
        nn.CrossEntropyLoss(),
        lambda n: torch.randn(n, 3, 4),
        lambda n: torch.randint(0, 5, (n,)),
    ),
    Case(
        "transformer",
        Transformer,
        nn.CrossEntropyLoss(),
        lambda n: torch.randint(0, 11, (n, 5)),
        lambda n: torch.randint(0, 11, (n, 5)),
    ),
]

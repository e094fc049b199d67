"""Modules: containers, methods, constants of modules, buffers that programs set, TorchScript classes."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: B905

import enum
from typing import Final

import torch
from torch import Tensor, nn

from .records import EVERYWHERE, Record, scripted

RECORDS: list[Record] = []
torch.manual_seed(4)
_X = torch.randn(2, 4)


@scripted(RECORDS, _X, further=[(-_X,), (_X * 5,)], opsets=EVERYWHERE)
class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.named = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4, bias=False)})
        self.sequence = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.LayerNorm(4))
        self.weights = nn.ParameterList([torch.randn(4), torch.randn(4)])

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        results: dict[str, Tensor] = {}
        for name, layer in self.named.items():
            results[name] = layer(x)
        for layer in self.sequence:
            x = layer(x)
        x = self.layers[0](x) + self.named["first"](x) + self.sequence[0](x)
        return x * len(self.layers), results


@scripted(RECORDS, _X, further=[(-_X,), (_X * 5,)])
class ConstantsOfModules(nn.Module):
    rate: Final[float]
    sizes: Final[list[int]]

    def __init__(self):
        super().__init__()
        self.rate = 0.5
        self.sizes = [4, 1, 2]
        self.factors = [1.5, 2.5]
        self.flags = [True, False]
        self.dtype = torch.float64
        self.device = torch.device("cpu")
        self.mode = "mean"
        self.pair = (2, 3.5)
        self.table = {"a": 1, "b": 2}
        self.nothing: int | None = None
        self.register_buffer("offset", torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.register_buffer("absent", None)

    def forward(self, x: Tensor):
        y = torch.zeros([x.size(0), 4], dtype=self.dtype, device=self.device)
        for size in self.sizes:
            x = x + size
        for factor, flag in zip(self.factors, self.flags):
            if flag:
                x = x * factor
        if self.nothing is not None:
            x = x * 100
        if self.absent is None and self.mode == "mean":
            x = x * self.rate
        x = x + self.pair[0] * self.pair[1] + self.table["b"] + self.offset
        y += x.to(self.dtype)
        return y.view(self.sizes[1], -1), x.to(y.device)


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return self.forward(self.forward(x))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight * 0.5


@scripted(RECORDS, _X, 2, further=[(-_X, 0), (_X * 5, 5)])
class Methods(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.inner = nn.ModuleList([Half(), Half()])

    @torch.jit.export
    def helper(self, x: Tensor, k: int) -> Tensor:
        if k > 3:
            return x - k
        return x * k

    def forward(self, x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            for module in self.inner:
                x = module.twice(x) + module(x)
            x = self.helper(x, 2)
        return self.helper(x, k=n)


@scripted(
    RECORDS,
    torch.randn(3, 4),
    further=[(torch.randn(6, 4),), (torch.randn(1, 4),)],
    dynamic={"x": {0: "time"}},
    mutations="outputs",
)
class StatefulCell(nn.Module):
    """Buffers written in place, replaced, and replaced on one path, in a loop."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("hidden", torch.zeros(4))
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for t in range(x.size(0)):
            self.total += x[t]
            self.seen.add_(1)
            if bool(x[t].sum() > 0):
                self.hidden = torch.tanh(self.linear(self.hidden) + x[t])
            outputs.append(self.hidden + self.total)
        return torch.stack(outputs)


@scripted(RECORDS, _X, further=[(-_X,)], mutations="drop", name="stateful_dropped")
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            self.count = self.count + 1
        self.count[0] -= 3
        return x + self.count[0] * self.count[1]


class Color(enum.Enum):
    """What a program compares with."""

    RED = 1
    GREEN = 2


@torch.jit.script
class Accumulator:
    """A class of TorchScript with state of its own."""

    def __init__(self, start: Tensor):
        self.total = start
        self.count = 0
        self.parts: list[Tensor] = []

    def add(self, x: Tensor, weight: float = 1.0):
        self.total = self.total + x * weight
        self.count += 1
        self.parts.append(x)

    def mean(self) -> Tensor:
        return self.total / self.count


@scripted(RECORDS, _X, 3, further=[(-_X, 1), (_X * 5, 5)])
def objects(x: Tensor, n: int):
    keeper = Accumulator(torch.zeros_like(x))
    keeper.add(x)
    for i in range(n):
        if bool(x.sum() > i):
            keeper.add(x + i, 0.5)
        else:
            keeper.total = keeper.total * 2
    return keeper.mean(), keeper.count, torch.stack(keeper.parts)


@scripted(RECORDS, _X, further=[(-_X,)])
def enumerations(x: Tensor):
    color = Color.RED
    if color == Color.RED and color.name == "RED":
        x = x + color.value
    if color is Color.GREEN:
        x = x * 100
    return x


@scripted(RECORDS, _X, "scale", 2, further=[(-_X, "scale", 3)])
def texts(x: Tensor, mode: str, k: int):
    name = f"{mode}_{'a'}"
    if name.startswith("scale") and name.split("_")[1] == "a" and len(name) == 7 and "ca" in name:
        x = x * 2
    message = f"k is {k} and {x.size(0)}"
    assert k > 0, message
    assert x.dim() == 2, f"rank {x.dim()}"
    if x.size(1) != 4:
        raise ValueError(f"four columns, not {x.size(1)}")
    for letter in mode:
        if letter == "a":
            x = x + 1
    return x * k


def halve(x: Tensor, steps: int) -> Tensor:
    """Halve so often."""
    for _ in range(steps):
        x = x / 2
    return x


@scripted(RECORDS, _X, 3, further=[(-_X, 0), (_X, 7)])
def forks(x: Tensor, n: int):
    task = torch.jit.fork(halve, x, n)
    other = torch.jit.fork(halve, x * 3, 1)
    with torch.no_grad():
        y = x + 1
    return torch.jit.wait(task) + torch.jit.wait(other) + y


@scripted(RECORDS, _X, further=[(-_X,)])
def in_place_in_blocks(x: Tensor):
    y = x.clone()
    row = y[0]
    if bool(x.sum() > 0):
        row += 1
        y[:, 1:].mul_(2)
    else:
        y[1] = row
        y.t()[0].zero_()
    for i in range(y.size(1)):
        y[:, i] += row.sum()
    z = y.view(-1)
    z[::2] -= 1
    return y, z, row

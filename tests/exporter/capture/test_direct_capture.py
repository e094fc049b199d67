"""Direct capture gives the source graph of torch.export, node for node."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opsetta

from ...models.zoo import ARCHITECTURES, BY_NAME, DECODERS
from ...opsets import is_full_run
from ...parity import records
from ...parity.higher_order_models import CASES
from ..torch_boundary.process_snapshot import changes, snapshot
from .both_captures import records_of, unlike

PARITY = pathlib.Path(records.__file__).parent
EVERY = 150
"""A quick run compares one record of so many."""


def _marked(name: Any, is_quick: bool, label: str) -> Any:
    return pytest.param(name, id=label, marks=[] if is_quick else [pytest.mark.sweep])


@pytest.mark.parametrize(
    "name", [_marked(each.name, each.name in ("convnext", "bert", "t5"), each.name) for each in ARCHITECTURES]
)
def test_architectures_are_captured_alike(name: str) -> None:
    architecture = BY_NAME[name]
    assert unlike(architecture.build(), (), architecture.inputs(2, 7)) is None


@pytest.mark.parametrize(
    "name", [_marked(each.name, each.name == "distilbert", each.name) for each in ARCHITECTURES]
)
def test_architectures_with_dynamic_sizes_are_captured_alike(name: str) -> None:
    architecture = BY_NAME[name]
    inputs = architecture.inputs(2, 7)
    assert unlike(architecture.build(), (), inputs, dynamic_shapes=architecture.dynamic_shapes) is None


@pytest.mark.parametrize("decoder", [_marked(each, each.name == "gpt2", each.name) for each in DECODERS])
def test_decoders_with_caches_are_captured_alike(decoder: Any) -> None:
    model = decoder.build()
    assert unlike(model, (), decoder.inputs(model, 2, 3)) is None


@pytest.mark.parametrize(
    "case",
    [
        _marked(each, at % 12 == 0, each.name)
        for at, each in enumerate(CASES)
        if not each.options.get("strict")
    ],
)
def test_higher_order_operators_are_captured_alike(case: Any) -> None:
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert unlike(case.model(), case.inputs, dynamic_shapes=case.dynamic) is None


@pytest.mark.parametrize("module", sorted(path.stem for path in PARITY.glob("test_*.py")))
def test_records_are_captured_alike(module: str) -> None:
    found = importlib.import_module(f"{records.__name__.rpartition('.')[0]}.{module}")
    for number, record in enumerate(records_of(found)):
        if number % EVERY and not is_full_run():
            continue
        shapes = None if record.dynamic is None else (record.dynamic,)
        model = records._Call(record.function).eval()
        assert unlike(model, record.inputs, dynamic_shapes=shapes) is None, record.name


class Columns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :3].long().sum()


def test_an_input_that_views_a_larger_tensor_is_captured_alike() -> None:
    x = torch.randn(2, 9, 5)[0]
    assert unlike(Columns().eval(), (x,), dynamic_shapes=({0: "n"},)) is None


@dataclasses.dataclass
class Pair:
    first: Tensor
    second: Tensor | None


class Tied(nn.Module):
    """Tied weights, views of one storage, an unused parameter, and a buffer that is not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = nn.Parameter(torch.ones(3))
        whole = torch.arange(8.0)
        self.register_buffer("low", whole[:4])
        self.register_buffer("high", whole[4:], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x) + self.low) + self.high.sum()


class Shared(nn.Module):
    """A module that is reached by two paths, and a list that is sliced."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.second = self.first
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[1:]:
            x = layer(x)
        return self.second(self.first(x))


class Writes(nn.Module):
    """Writes to buffers in place and by assignment, and to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("state", torch.zeros(4))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.state = self.state * 0.5 + x.mean(0)
        x[:, 0] = self.count
        return self.norm(x) + self.state


class Constants(nn.Module):
    """Tensors that are neither parameters nor buffers, and values read from them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.inner = nn.Module()
        self.inner.table = [torch.ones(4)]

    def forward(self, x: Tensor) -> Tensor:
        power = torch.tensor(2)
        if power.item() == 2:
            x = x * self.scale + self.inner.table[0] + torch.tensor([0.5])
        return x**power + torch.arange(4) + torch.zeros_like(x)


class Regions(nn.Module):
    """Regions with and without gradients, under autocast and without."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.linear(x)
        with torch.enable_grad():
            x = x + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.linear(x)
        return x.float()


class WithoutAutocast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.exp() @ x.T


class Calls(nn.Module):
    """Keyword arguments, defaults, numbers, None, a dataclass, and results that are arguments."""

    def forward(self, x: Tensor, scale: float = 2.0, *, pair: Any = None, times: int = 1, **rest: Any) -> Any:
        return {"sum": x * scale + pair.first * times, "same": x, "rest": (rest["y"], None, 3)}


class Views(nn.Module):
    """Operators that change the shape of a tensor in place, and writes to views."""

    def forward(self, x: Tensor) -> Any:
        y = x.clone()
        z = y.t()
        y.unsqueeze_(0).squeeze_(0)
        z.transpose_(0, 1)
        z[0].fill_(2.0)
        return y, z.detach().relu_(), torch.split(x, 2, dim=1)[1]


class ByValue(nn.Module):
    """Sizes that depend on values."""

    def forward(self, x: Tensor) -> Any:
        found = x.nonzero()
        count = (x > 0).sum().item()
        torch._check(count >= 0)
        return found + 1, torch.zeros(count)


class Layers(nn.Module):
    """Layers whose kernels a capture replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2, bidirectional=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lstm(x.unsqueeze(1))[0]
        return self.encoder(self.attention(x, x, x)[0])


class ConstantsAmongOthers(nn.Module):
    """Constants that are read and written to after operators have taken them along with other tensors."""

    def forward(self, x: Tensor) -> list[Tensor]:
        count, scale = torch.tensor(1), torch.tensor([1.0, 2.0, 3.0, 4.0])
        joined = torch.cat([torch.tensor([]), x], -2) * count
        few = joined[: int(count)]
        count.add_(1)
        seen = scale.expand_as(x)
        scale[0] = 5.0
        return [few, joined[: int(count)], seen + x, torch.where(x > 0, scale, x), scale]


def _x() -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple], Callable[[], dict[str, Any]]]] = {
    "tied weights": (Tied, lambda: (torch.tensor([[0, 4]]),), dict),
    "shared modules": (Shared, lambda: (_x(),), dict),
    "writes": (Writes, lambda: (_x(),), dict),
    "constants": (Constants, lambda: (_x(),), dict),
    "constants among others": (ConstantsAmongOthers, lambda: (_x(),), dict),
    "regions": (Regions, lambda: (_x(),), dict),
    "without autocast": (WithoutAutocast, lambda: (_x(),), dict),
    "calls": (Calls, lambda: (_x(),), lambda: {"y": _x(), "times": 3, "pair": Pair(_x(), None)}),
    "views": (Views, lambda: (_x(),), dict),
    "sizes by value": (ByValue, lambda: (_x(),), dict),
    "layers": (Layers, lambda: (_x(),), dict),
    "function": (lambda: lambda x, y=1.0: torch.where(x > 0, x, y), lambda: (_x(),), dict),
    "vmap": (lambda: lambda x: torch.vmap(lambda row: row * row.sum())(x), lambda: (_x(),), dict),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)), lambda: (_x(),), dict),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_models_are_captured_alike(name: str, training: bool) -> None:
    make, args, kwargs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    if isinstance(model, nn.Module):
        model.train(training)
    given, named = args(), kwargs()
    before = snapshot(model, given)
    assert unlike(model, given, named) is None
    assert changes(before, snapshot(model, given)) == []


def test_constants_among_others_with_a_dynamic_size() -> None:
    shapes = ({0: "n"},)
    assert unlike(ConstantsAmongOthers(), (_x(),), dynamic_shapes=shapes) is None
    program = opsetta.export(ConstantsAmongOthers(), (_x(),), opset=17, dynamic_shapes=shapes)
    program.verify((torch.randn(7, 4),))


@pytest.mark.parametrize("name", ["constants", "layers", "writes"])
def test_source_lines_are_captured_alike(name: str) -> None:
    make, args, kwargs = MODELS[name]
    assert unlike(make().eval(), args(), kwargs(), source_lines=True) is None


class _Compared(torch.nn.Module):
    """Kernels of GPyTorch: equal arguments take another path."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        distances = (x[:, None] - y[None]).pow(2).sum(-1)
        return distances.fill_diagonal_(0.0) if torch.equal(x, y) else distances


def test_tensors_of_other_sizes_are_not_equal() -> None:
    x, y = torch.randn(5, 2), torch.randn(4, 2)
    opsetta.export(_Compared().eval(), (x, y), opset=17, capture="direct").verify()
    with pytest.raises(opsetta.CaptureError, match="if torch.equal"):
        opsetta.export(_Compared().eval(), (x, x.clone()), opset=17)
    with pytest.warns(UserWarning, match="torch.equal"):
        program = opsetta.export(_Compared().eval(), (x, x + 1), opset=17, specialize=True)
    program.verify()
    assert [decision.value for decision in program.specializations] == [False]


def test_products_of_dynamic_sizes_ask_for_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """opt_einsum, which need not be installed, would make Python numbers of the sizes."""
    asked = []

    @contextlib.contextmanager
    def flags(**settings: Any) -> Iterator[None]:
        asked.append(settings)
        yield

    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bnd,bde,be->bn", x, y, y[:, 0])

    monkeypatch.setattr(torch.backends.opt_einsum, "flags", flags)
    call = torch.randn(2, 7, 3), torch.randn(2, 3, 4)
    opsetta.export(model, call, opset=17, capture="direct")
    assert asked == []
    shapes = ({0: "batch", 1: "n"}, {0: "batch"})
    program = opsetta.export(model, call, opset=17, dynamic_shapes=shapes, capture="direct")
    assert asked == [{"enabled": False}]
    program.verify((torch.randn(3, 9, 3), torch.randn(3, 3, 4)))

"""State of every kind that a forward may change is the same after an export, however it captures."""

from __future__ import annotations

import collections
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.torch_boundary.boundary import boundary
from opsetta.exporter.torch_boundary.state.model_state import Preserved

CAPTURES = ("auto", "torch.export", "strict", "trace")


class Strict(dict):
    """Refuses every method that its own class could run."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a method of the class")

    __iter__ = __len__ = keys = values = items = copy = clear = update = __setitem__ = __contains__ = _refuse


class Last(list):
    pass


class Slots:
    __slots__ = ("later", "number", "seen")

    def __init__(self) -> None:
        self.number, self.seen = 0, [1]


class Everything:
    calls = 0
    history: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.counter, self.ordered = collections.Counter(a=1), collections.OrderedDict(a=1, b=2)
        self.strict, self.last, self.slots = Strict(a=1), Last([1]), Slots()
        self.array, self.objects = np.zeros(3), np.array([None, object()], dtype=object)
        self.local = threading.local()
        self.local.number = 0
        self.generators = [
            random.Random(1),
            np.random.RandomState(1),
            np.random.default_rng(1),
            torch.Generator(),
        ]
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        self.step, self.count = step, lambda: count

    def change(self) -> None:
        self.counter["b"] += 1
        self.ordered.move_to_end("a")
        dict.__setitem__(self.strict, "b", 2)
        self.last.append(2)
        self.slots.number, self.slots.later = 5, 6
        self.slots.seen.append(2)
        self.array += 1
        self.objects[0] = "changed"
        self.local.number = 3
        self.local.later = 4
        self.step()
        type(self).calls += 1
        Everything.history.append(self)
        Everything.new = 3  # type: ignore[attr-defined]
        first, second, third, fourth = self.generators
        first.random(), second.rand(), third.random(), torch.rand(1, generator=fourth)

    def seen(self) -> list[Any]:
        first, second, third, fourth = self.generators
        return [
            dict(self.counter),
            list(self.ordered),
            list(dict.items(self.strict)),
            list(self.last),
            (self.slots.number, list(self.slots.seen), hasattr(self.slots, "later")),
            self.array.tolist(),
            list(map(id, self.objects)),
            dict(vars(self.local)),
            self.count(),
            (Everything.calls, len(Everything.history), hasattr(Everything, "new")),
            (first.getstate(), second.get_state()[2], third.bit_generator.state["state"]),
            fourth.get_state().tolist(),
        ]


def test_state_of_every_kind_is_restored() -> None:
    everything = Everything()
    before = everything.seen()
    preserved = Preserved(everything)
    for _ in range(2):
        with preserved:
            everything.change()
            assert all(one != other for one, other in zip(before, everything.seen(), strict=True))
        assert everything.seen() == before


class Counting:
    seen: ClassVar[list[int]] = []
    total = 0


@pytest.mark.parametrize("names", [("kind", "item"), ("item", "kind")])
def test_the_class_of_an_object_is_restored_although_the_model_holds_the_class_too(
    names: tuple[str, str],
) -> None:
    module = nn.Module()
    for name in names:
        setattr(module, name, Counting if name == "kind" else Counting())
    with Preserved(module):
        Counting.total, _ = 3, Counting.seen.append(1)
    assert (Counting.total, Counting.seen) == (0, [])


class Renamed(dict):
    pass


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.defaultdict, Renamed])
def test_a_key_that_is_replaced_beside_equal_values_is_restored(cls: type[dict[str, int]]) -> None:
    module = nn.Module()
    module.held = cls()
    module.held.update(first=1, second=2)
    with Preserved(module):
        module.held.clear()
        module.held.update(other=1, second=2)
        module.second = module.__dict__.pop("training")
    assert list(module.held.items()) == [("first", 1), ("second", 2)]
    assert "training" in vars(module)
    assert "second" not in vars(module)


@pytest.mark.parametrize("capture", CAPTURES)
def test_hooks_and_what_they_refer_to_are_the_same_after_an_export(capture: str) -> None:
    model, counts, results = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), collections.Counter(), []

    def before_call(module: nn.Module, inputs: Any) -> None:
        counts["calls"] += 1
        handle.remove()
        module.weight.requires_grad_(False)

    def after_call(module: nn.Module, inputs: Any, result: torch.Tensor) -> torch.Tensor:
        results.append(result)
        return result * 2 if result.shape[0] == 2 else result

    handle = model[0].register_forward_pre_hook(before_call)
    model[1].register_forward_hook(after_call)
    model(torch.randn(2, 3))
    handle = model[0].register_forward_pre_hook(before_call)
    model[0].weight.requires_grad_(True)
    counts.clear()
    results.clear()
    model[0].weight.grad = gradient = torch.ones(3, 3)
    _export(model, capture)
    assert (dict(counts), results) == ({}, [])
    assert list(model[0]._forward_pre_hooks.values()) == [before_call]
    assert model[0].weight.requires_grad
    assert model[0].weight.grad is gradient


class Gradient(nn.Module):
    """Zeroes and adds to the gradients of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.zero_grad(set_to_none=False)
        with torch.enable_grad():
            inputs = x.detach().requires_grad_()
            self.linear(inputs).sum().backward()
        return x + 1


@pytest.mark.parametrize("capture", CAPTURES)
def test_gradients_are_the_same_after_a_forward_that_computes_some(capture: str) -> None:
    model = Gradient()
    model(torch.randn(2, 3))
    held = [(item.grad, item.grad.clone()) for item in model.parameters() if item.grad is not None]
    _export(model, capture)
    for parameter, (gradient, values) in zip(model.parameters(), held, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, values)


@pytest.mark.parametrize("capture", CAPTURES)
def test_arguments_are_the_same_after_a_forward_that_writes_to_them(capture: str) -> None:
    x, others = torch.zeros(3), [torch.ones(3)]
    before = x._version, others[0]._version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opsetta.export(
            lambda x, others: x.add_(1) + others[0].mul_(3), (x, others), capture=capture, mutations="drop"
        )
    assert (x._version, others[0]._version) == before
    assert (float(x.sum()), float(others[0].sum())) == (0, 3)


class SetsABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", None)
        self.inner = nn.Identity()
        self.inner.register_buffer("last", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x.sum()
        self.inner.last = x * 2
        return x + self.last + self.inner.last


def test_a_buffer_that_is_none_before_the_call_may_be_set() -> None:
    with pytest.warns(UserWarning, match="replaces its parameter or buffer") as noted:
        program = opsetta.export(SetsABuffer().eval(), (torch.randn(2, 3),), opset=13)
    named = {name for name in ("'last'", "'inner.last'") for entry in noted if name in str(entry.message)}
    assert named == {"'last'", "'inner.last'"}
    program.verify()


_GENERATOR = torch.Generator()


@pytest.mark.parametrize("capture", ["direct", "torch.export", "trace"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + torch.rand(x.shape, generator=_GENERATOR),
        lambda x: torch.bernoulli(x.sigmoid(), generator=_GENERATOR),
        lambda x: x.clone().normal_(generator=_GENERATOR),
    ],
)
def test_a_random_generator_of_the_model_has_no_counterpart(draw: Callable[..., Any], capture: str) -> None:
    program = opsetta.export(draw, (torch.randn(2, 3),), opset=13, capture=capture)
    assert any(node.op_type.startswith("Random") for node in program.model.graph)


def test_settings_that_a_model_changes_are_restored() -> None:
    before = (np.geterr(), np.get_printoptions(), torch.get_float32_matmul_precision())
    with boundary():
        np.seterr(all="raise")
        np.set_printoptions(precision=1)
        torch.set_float32_matmul_precision("medium")
        torch.autograd.set_detect_anomaly(True)
    assert before == (np.geterr(), np.get_printoptions(), torch.get_float32_matmul_precision())
    assert not torch.is_anomaly_enabled()


def _export(model: nn.Module, capture: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            opsetta.export(model, (torch.randn(2, 3),), capture=capture, mutations="drop")
        except opsetta.OpsettaError:
            return

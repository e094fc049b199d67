"""Tensors that a model's code keeps outside of the model: none of a capture may be among them afterwards."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.torch_boundary.fake_tensors import FakeTensorMode
from opsetta.exporter.torch_boundary.state.remembered_tensors import RememberedTensors

_TABLES: dict[int, torch.Tensor] = {}
_LISTS: list[Any] = []
_BY_KEY: dict[str, Any] = {"table": None}
_TABLE: torch.Tensor | None = None


@functools.lru_cache
def by_function(size: int) -> torch.Tensor:
    return torch.arange(size).float() * 2


@functools.cache
def in_tuple(size: int) -> tuple[int, torch.Tensor]:
    return size, torch.arange(size).float()


def in_dict(size: int) -> torch.Tensor:
    if size not in _TABLES:
        _TABLES[size] = torch.ones(size) * 3
    return _TABLES[size]


def in_list(size: int) -> torch.Tensor:
    if not _LISTS:
        _LISTS.append([torch.ones(size)])
    return _LISTS[0][0]


def by_name(size: int) -> torch.Tensor:
    global _TABLE
    if _TABLE is None:
        _TABLE = torch.ones(size) * 5
    return _TABLE


class Tables:
    """Tables that belong to no object."""

    known: ClassVar[dict[int, tuple[torch.Tensor]]] = {}

    @staticmethod
    @functools.cache
    def cached(size: int) -> torch.Tensor:
        return torch.arange(size).float() + 1

    @classmethod
    def kept(cls, size: int) -> torch.Tensor:
        if size not in cls.known:
            cls.known[size] = (torch.arange(size).float() - 1,)
        return cls.known[size][0]


class Model(nn.Module):
    """Adds a table; remembers another one in its class."""

    own: torch.Tensor | None = None

    def __init__(self, table: Callable[[int], torch.Tensor]):
        super().__init__()
        self.kind = table.__name__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Model.own is None:
            Model.own = torch.ones(4) * 7
        if self.kind == "in_tuple":
            return x + in_tuple(4)[1] + Model.own
        places = {each.__name__: each for each in (by_function, in_dict, in_list, by_name)}
        table = places.get(self.kind) or getattr(Tables, self.kind)
        return x + table(4) + Model.own


KINDS = (by_function, in_tuple, in_dict, in_list, by_name, Tables.cached, Tables.kept)


@pytest.mark.parametrize("capture", ["direct", "torch.export"])
@pytest.mark.parametrize("table", KINDS, ids=lambda table: table.__name__)
def test_a_capture_leaves_no_fake_tensor_behind(table: Callable[[int], torch.Tensor], capture: str) -> None:
    forget()
    model, x = Model(table).eval(), torch.randn(2, 4)
    for _ in range(2):
        program = opsetta.export(model, (x,), capture=capture, dynamic_shapes=({0: "batch"},))
        assert Model.own is None or type(Model.own) is torch.Tensor
        program.verify((x,))
        program.verify((torch.randn(5, 4),))
    assert type(model(x)) is torch.Tensor


def forget() -> None:
    """Start without tables."""
    global _TABLE
    _TABLE = Model.own = None
    for kept in (_TABLES, _LISTS, Tables.known):
        kept.clear()
    for cached in (by_function, in_tuple, Tables.cached):
        cached.cache_clear()


def test_real_tensors_stay() -> None:
    forget()
    before = by_function(4), in_dict(4), by_name(4)
    misses = by_function.cache_info().misses
    program = opsetta.export(Model(by_function).eval(), (torch.randn(2, 4),))
    assert (by_function(4), in_dict(4), by_name(4)) == before or all(
        now is then for now, then in zip((by_function(4), in_dict(4), by_name(4)), before, strict=True)
    )
    assert by_function.cache_info().misses == misses
    program.verify()


def test_a_function_that_is_defined_anew_is_found() -> None:
    module = sys.modules[__name__]
    held = module.by_function
    for factor in (3, 4):

        @functools.lru_cache
        def changed(size: int, factor: int = factor) -> torch.Tensor:
            return torch.arange(size).float() * factor

        changed.__module__ = __name__
        module.by_function = changed
        changed.__name__ = "by_function"
        try:
            program = opsetta.export(Model(changed).eval(), (torch.zeros(2, 4),))
            program.verify()
        finally:
            module.by_function = held


CACHE = "import functools\n@functools.cache\ndef {name}(key):\n    return key()\n"


def put_module(patch: pytest.MonkeyPatch, name: str, code: str) -> types.ModuleType:
    module = types.ModuleType(name)
    patch.setitem(sys.modules, name, module)
    exec(code, vars(module))
    return module


def forgets(model: object, function: Callable[[Callable[[], torch.Tensor]], torch.Tensor]) -> bool:
    """Whether a fake tensor that a cache has stored since is removed from it."""
    with RememberedTensors(model) as remembered:
        with FakeTensorMode():
            function(lambda: torch.ones(2))
        return remembered.forget_fakes() and not function.cache_info().currsize  # type: ignore[attr-defined]


def test_later_names_and_modules_of_other_modules_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    far = put_module(monkeypatch, "walked_far", CACHE.format(name="far"))
    near = put_module(monkeypatch, "walked_near", "from walked_far import far\n" + CACHE.format(name="near"))
    user = put_module(monkeypatch, "walked_user", "from walked_near import near\nclass Model: pass\n")
    model = user.Model()
    for function in (far.far, near.near, far.far):
        assert forgets(model, function)
    # A new name in a module.
    exec(CACHE.format(name="later"), vars(far))
    assert forgets(model, far.later)
    # A new module of the same name.
    replaced = put_module(monkeypatch, "walked_far", CACHE.format(name="far"))
    assert forgets(model, replaced.far)
    # A module that was not imported before: the class of an object may name one.
    exec("def lost(): pass\nlost.__module__ = 'walked_lost'", vars(near))
    assert forgets(model, near.near)
    lost = put_module(monkeypatch, "walked_lost", CACHE.format(name="lost"))
    assert forgets(model, lost.lost)

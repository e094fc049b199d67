"""An export asks nothing of the objects that the modules and closures of a model hold beside the model."""

from __future__ import annotations

import functools
import io
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta import torch_onnx
from opsetta.exporter.torch_boundary.containers import pytree
from opsetta.exporter.torch_boundary.containers.structures import register_results
from opsetta.exporter.torch_boundary.static_lookups import (
    defining_module,
    instance_attributes,
    underlying_function,
)

from .foreign_objects import EVERY, Absent, LazyModule, asked, hostile

KINDS = sorted(EVERY)
_TABLES: dict[int, torch.Tensor] = {}
held: Any = None
held_in_list: list[Any] = []
held_in_dict: dict[str, Any] = {}


class Beside:
    """A class of the module, whose attributes the search for remembered tensors visits."""

    table: torch.Tensor | None = None


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if 3 not in _TABLES:
            _TABLES[3] = torch.ones(3)
        return self.linear(x) + _TABLES[3] if held is not None else x


class Branches(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x.sum() > 0 else x


@pytest.fixture(params=KINDS)
def foreign(request: Any) -> Iterator[Any]:
    """One of the objects, in all places of this module that a walk reaches."""
    module: Any = sys.modules[__name__]
    item = EVERY[request.param]
    module.held = item
    held_in_list[:] = [item, (item,)]
    held_in_dict["key"] = item
    type.__setattr__(Beside, "member", item)
    type.__setattr__(Model, "member", item)
    _TABLES.clear()
    asked.clear()
    yield item
    module.held = None
    held_in_list.clear()
    held_in_dict.clear()
    del Beside.member, Model.member  # type: ignore[attr-defined]


def with_attributes(model: nn.Module, item: Any) -> nn.Module:
    # torch itself asks what is assigned to a module.
    vars(model).update(one=item, several=[item, {"key": item}], both=(item, item))
    return model.eval()


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_model_beside_foreign_objects_is_exported(foreign: Any, is_dynamic: bool) -> None:
    model = with_attributes(Model(), foreign)
    shapes = ({0: "batch"},) if is_dynamic else None
    program = opsetta.export(model, (torch.randn(2, 3),), dynamic_shapes=shapes)
    program.verify()
    assert asked == []
    assert all(type(table) is torch.Tensor for table in _TABLES.values())


def test_a_function_with_a_foreign_object_in_its_closure_is_exported(foreign: Any) -> None:
    def function(x: torch.Tensor, default: Any = foreign) -> torch.Tensor:
        return x * 2 if foreign is not None and default is not None and held is not None else x

    for capture in ("direct", "torch.export"):
        opsetta.export(
            lambda x: function(x) if foreign is not None else x, (torch.randn(3),), capture=capture
        )
    assert asked == []


def test_a_refused_model_beside_foreign_objects_is_refused_with_its_own_error(foreign: Any) -> None:
    model = with_attributes(Branches(), foreign)
    with pytest.raises(opsetta.CaptureError, match="branch depends on the values"):
        opsetta.export(model, (torch.randn(2, 3),), capture="direct")


def test_replacing_torch_onnx_imports_no_lazy_module(foreign: Any) -> None:
    with torch_onnx.replaced():
        torch.onnx.export(Model().eval(), (torch.randn(2, 3),), io.BytesIO())
    assert asked == []


def test_a_lazy_module_of_sys_modules_is_left_alone(monkeypatch: Any) -> None:
    lazy = LazyModule("opsetta_tests_lazy")
    monkeypatch.setitem(sys.modules, "opsetta_tests_lazy", lazy)
    monkeypatch.setitem(sys.modules, "opsetta_tests_absent", Absent())
    monkeypatch.setitem(globals(), "opsetta_tests_lazy", lazy)
    asked.clear()
    opsetta.export(Model().eval(), (torch.randn(2, 3),))
    with torch_onnx.replaced():
        pass
    assert asked == []


class Slotted:
    __slots__ = ()


def test_static_lookups_find_what_python_finds() -> None:
    class Plain:
        @staticmethod
        def function() -> None:
            pass

    plain = Plain()
    plain.attribute = 1  # type: ignore[attr-defined]
    module = types.ModuleType("name")
    cached = functools.lru_cache(Plain.function)
    for item in (plain, nn.ReLU(), Plain.function, cached, torch.nn.Parameter(torch.ones(1)), RuntimeError()):
        assert instance_attributes(item) is vars(item)
    for item in (Plain, Plain.function, cached, nn.ReLU, int):
        assert defining_module(item) == item.__module__
    assert underlying_function(vars(Plain)["function"]) is Plain.function
    assert [instance_attributes(item) for item in (1, Slotted(), hostile)] == [None, None, None]
    assert underlying_function(module) is module


class _ComputedAttributes:
    """A result whose attributes are code of its class."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("this code must not run")


def test_results_are_registered_without_running_their_code() -> None:
    register_results({"a": torch.ones(2), "b": _ComputedAttributes()})
    assert _ComputedAttributes not in pytree.SUPPORTED_NODES

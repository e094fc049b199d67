"""`replaced`: what it reaches, and that everything is as before when it ends."""

import functools
import importlib
import sys
import threading
import types

import pytest
import torch
from torch import nn

import opsetta
from opsetta import torch_onnx
from opsetta.torch_onnx.exporting import replacement

from .files import check, opset_of

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
NAMES = ("export", "register_custom_op_symbolic", "unregister_custom_op_symbolic", "JitScalarType")
MODULES = ("symbolic_helper", "symbolic_opset9", "symbolic_opset11")


@torch.library.custom_op("dropin::halve", mutates_args=())
def halve(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return x / by


@halve.register_fake
def _(x, by=2.0):
    return torch.empty_like(x)


class Halves(nn.Module):
    def forward(self, x):
        return halve(x, 4.0)


def library(source):
    """A module of somebody else, imported by this name until the test ends."""
    module = types.ModuleType("somebodys_library")
    sys.modules[module.__name__] = module
    exec(source, vars(module))
    return module


@pytest.fixture(autouse=True)
def forget_library():
    yield
    sys.modules.pop("somebodys_library", None)


def state():
    """What `replaced` changes."""
    for name in MODULES:
        importlib.import_module(f"torch.onnx.{name}")
    utils = importlib.import_module("torch.onnx.utils")
    first = {name: list(versions) for name, versions in opsetta.default_registry._first.items() if versions}
    return (
        {name: vars(torch.onnx)[name] for name in (*NAMES, *MODULES)},
        {name: sys.modules[f"torch.onnx.{name}"] for name in MODULES},
        {name: vars(utils)[name] for name in NAMES[:3]},
        first,
        dict(torch.onnx.symbolic_helper.__dict__),
        (list(replacement._uses), list(replacement._undo)),
    )


@pytest.fixture(autouse=True)
def unchanged():
    before = state()
    yield
    assert state() == before


def test_exports_of_a_library_go_to_opsetta(tmp_path):
    before = library("from torch.onnx import export\nimport torch.onnx.utils as utils\nimport torch")
    with torch_onnx.replaced():
        within = library("from torch.onnx import export")
        for place, call in {
            "attribute": torch.onnx.export,
            "bound before": before.export,
            "bound within": within.export,
            "utils": before.utils.export,
        }.items():
            call(nn.ReLU(), (X,), str(tmp_path / place), opset_version=12)
            check(tmp_path / place, torch.relu, X)
    assert within.export is before.export is torch.onnx.export


def test_the_opset_may_be_fixed_for_every_export(tmp_path):
    with torch_onnx.replaced(opset=11), torch_onnx.replaced():
        torch.onnx.export(nn.ReLU(), (X,), tmp_path / "m.onnx", opset_version=18)
    assert opset_of(tmp_path / "m.onnx") == 11
    with pytest.raises(opsetta.OpsetError), torch_onnx.replaced(opset=99):
        pass


def test_a_kept_function_calls_torch_again_after_the_block(monkeypatch):
    original = torch.onnx.export
    called = []
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **kwargs: called.append(kwargs))
    with torch_onnx.replaced():
        kept = functools.partial(torch.onnx.export, opset_version=3)
    kept(nn.ReLU(), (X,))
    assert called == [{"opset_version": 3}]
    assert original is not torch.onnx.export


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_everything_is_put_back_after_an_exception(error):
    def ended():
        with torch_onnx.replaced(), torch_onnx.replaced():
            torch.onnx.register_custom_op_symbolic("dropin::halve", lambda g, x, by: x, 9)
            raise error

    with pytest.raises(error):
        ended()


def test_blocks_of_several_threads_end_with_the_last(tmp_path):
    entered, left = threading.Barrier(2), threading.Event()
    original = [torch.onnx.export]

    def other():
        with torch_onnx.replaced():
            entered.wait(10)
            left.wait(10)
            torch.onnx.export(nn.ReLU(), (X,), tmp_path / "m.onnx", opset_version=12)

    thread = threading.Thread(target=other)
    thread.start()
    with torch_onnx.replaced():
        entered.wait(10)
    assert torch.onnx.export is not original[0]
    left.set()
    thread.join(30)
    check(tmp_path / "m.onnx", torch.relu, X)


SYMBOLIC = """
import torch
from torch.onnx import register_custom_op_symbolic, unregister_custom_op_symbolic, symbolic_helper
import torch.onnx.symbolic_helper as sym_help
from torch.onnx.symbolic_helper import parse_args, _is_none
from torch.onnx.symbolic_opset9 import div
from torch.onnx import symbolic_opset11 as opset11

@parse_args("v", "f")
def halve(g, x, by):
    assert not _is_none(x) and isinstance(by, float) and sym_help._get_tensor_rank(x) == 2
    shifted = opset11.add(g, x, g.op("Constant", value_t=torch.tensor(1.0)))
    halved = div(g, shifted, g.op("Constant", value_t=torch.tensor(by)))
    return g.op("Squeeze", g.op("Unsqueeze", halved, axes_i=[0]), axes_i=[0])
"""


@pytest.mark.parametrize(
    ("imported", "registered"), [("before", "before"), ("before", "within"), ("within", "within")]
)
def test_symbolic_functions_of_a_library_are_used(imported, registered, tmp_path):
    module = library(SYMBOLIC) if imported == "before" else None
    if registered == "before":
        module.register_custom_op_symbolic("dropin::halve", module.halve, 9)
    try:
        with torch_onnx.replaced():
            module = module or library(SYMBOLIC)
            if registered == "within":
                module.register_custom_op_symbolic("dropin::halve", module.halve, 9)
            torch.onnx.export(Halves(), (X,), tmp_path / "m.onnx", opset_version=13)
            check(tmp_path / "m.onnx", lambda x: (x + 1) / 4, X, opset=13)
            module.unregister_custom_op_symbolic("dropin::halve", 9)
            with pytest.raises(torch.onnx.OnnxExporterError, match="dropin::halve"):
                torch.onnx.export(Halves(), (X,), opset_version=13)
    finally:
        if registered == "before":
            torch.onnx.unregister_custom_op_symbolic("dropin::halve", 9)
    assert module.parse_args is torch.onnx.symbolic_helper.parse_args
    assert module.div is torch.onnx.symbolic_opset9.div


def test_what_was_registered_with_opsetta_before_the_block_is_there_after_it():
    kept = lambda g, x, by: g.op("Neg", x)  # noqa: E731
    torch_onnx.register_custom_op_symbolic("dropin::halve", kept, 9)
    try:
        with torch_onnx.replaced():
            torch.onnx.register_custom_op_symbolic("dropin::halve", lambda g, x, by: g.op("Abs", x), 9)
            with torch_onnx.replaced():
                torch.onnx.unregister_custom_op_symbolic("dropin::halve", 9)
            [node] = torch.onnx.export(Halves(), (X,), opset_version=12).model.graph
            assert node.op_type == "Abs"
        assert opsetta.default_registry.first("dropin::halve", 9).function is kept
    finally:
        torch_onnx.unregister_custom_op_symbolic("dropin::halve", 9)


def test_companions_of_torch_onnx_work_within_a_block():
    model = nn.Sequential(nn.Dropout(0.5))
    with torch_onnx.replaced():
        assert not torch.onnx.is_in_onnx_export()
        with torch.onnx.select_model_mode_for_export(model, torch.onnx.TrainingMode.EVAL):
            assert not model.training
            [node] = torch.onnx.export(model, (X,), opset_version=12).model.graph
        assert model.training
        assert node.op_type == "Identity"
        with pytest.raises(torch.onnx.errors.OnnxExporterError):
            torch.onnx.export(model, (X,), opset_version=1)
        assert torch.onnx.export.__wrapped__.__module__ == "torch.onnx"


@torch.library.custom_op("dropin::scale", mutates_args=())
def scale(x: torch.Tensor, by: float, shift: torch.Tensor | None) -> torch.Tensor:
    return x * by if shift is None else x * by + shift


@scale.register_fake
def _(x, by, shift):
    return torch.empty_like(x)


OF_TORCH = """
from torch.onnx import symbolic_helper
from torch.onnx.symbolic_helper import parse_args

def add(g, x, shift):
    return x if symbolic_helper._is_none(shift) else g.op("Add", x, shift)

@parse_args("v", "f", "v")
def scale(g, x, by, shift):
    return add(g, g.op("Mul", x, g.op("Constant", value_t=torch.tensor(by))), shift)
"""


@pytest.mark.parametrize("dynamo", [True, False])
def test_export_uses_functions_that_were_registered_with_torch(dynamo, tmp_path):
    space = {"torch": torch}
    exec(OF_TORCH, space)
    helper = space["symbolic_helper"]
    torch.onnx.register_custom_op_symbolic("dropin::scale", space["scale"], 9)
    x, path = torch.randn(3), tmp_path / "model.onnx"

    class Scales(torch.nn.Module):
        def forward(self, x):
            return scale(x, 2.0, None) - scale(x, 3.0, x.exp())

    try:
        torch_onnx.export(Scales().eval(), (x,), path, opset_version=11, dynamo=dynamo)
    finally:
        torch.onnx.unregister_custom_op_symbolic("dropin::scale", 9)
    torch.testing.assert_close(opsetta.load(path)(x), Scales()(x))
    assert space["symbolic_helper"] is helper
    with pytest.raises(opsetta.UnsupportedOperatorsError):
        torch_onnx.export(Scales().eval(), (x,), path, opset_version=11, dynamo=dynamo)

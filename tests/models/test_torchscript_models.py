"""Real models through TorchScript, traced and scripted, against the TorchScript program itself."""

from __future__ import annotations

import functools
import inspect
import warnings

import onnx
import pytest
import torch

import opsetta

from .scriptable import SCRIPTABLE, Scriptable
from .zoo import ARCHITECTURES, BY_NAME, Architecture

OPSETS = (9, 11, 13, 16, 18, 21, 24)
CONVOLUTIONAL_OPSETS = (7, 8)
FORMS = ("traced", "scripted")
_BY_NAME = {model.name: model for model in SCRIPTABLE}
_QUICK = (9, 13, 24)


class _Positional(torch.nn.Module):
    """A model of transformers as a trace can hold it: positional arguments, a tuple of tensors, no cache."""

    def __init__(self, model: torch.nn.Module, names: list[str]):
        super().__init__()
        self.model = model
        self._names = names

    def forward(self, *given: torch.Tensor):
        results = self.model(**dict(zip(self._names, given, strict=True)), return_dict=False)
        leaves = torch.utils._pytree.tree_leaves(results)
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def order(architecture: Architecture) -> list[str]:
    """Names of the architecture's inputs, in the order of its forward's parameters."""
    names = architecture.inputs(2, 7)
    return [n for n in inspect.signature(architecture.build().forward).parameters if n in names]


@functools.lru_cache(maxsize=2)
def traced(name: str, dynamic: bool) -> tuple[opsetta.Program, list[str]]:
    architecture = BY_NAME[name]
    names = order(architecture)
    torch.manual_seed(0)
    inputs = architecture.inputs(2, 7)
    example = tuple(inputs[n] for n in names)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        model = _Positional(architecture.build(), names).eval()
        trace = torch.jit.trace(model, example, check_trace=False, strict=False)
    shapes = [architecture.dynamic_shapes[n] for n in names] if dynamic else None
    return opsetta.export(trace, example, opset=18, dynamic_shapes=shapes), names


def _opsets(convolutional: bool) -> tuple[int, ...]:
    return (*CONVOLUTIONAL_OPSETS, *OPSETS) if convolutional else OPSETS


def _marks(opset: int, group: str, quick: tuple[int, ...] = _QUICK) -> list[pytest.MarkDecorator]:
    group_mark = pytest.mark.xdist_group(group)
    return [group_mark] if opset in quick else [group_mark, pytest.mark.sweep]


def architectures() -> list:
    """Every architecture; in quick runs its dynamic trace, at the opsets where most changes."""
    found = []
    for architecture in ARCHITECTURES:
        for dynamic in architecture.forms:
            group = f"{architecture.name}-{'dynamic' if dynamic else 'static'}"
            quick = (7, *_QUICK) if dynamic else ()
            found += [
                pytest.param(architecture.name, dynamic, opset, id=f"{group}-{opset}",
                             marks=_marks(opset, f"traced-{group}", quick))
                for opset in (*CONVOLUTIONAL_OPSETS, *OPSETS)
                if opset in architecture.opsets
            ]  # fmt: skip
    return found


@pytest.mark.parametrize(("name", "dynamic", "opset"), architectures())
def test_traced_architecture_agrees(name: str, dynamic: bool, opset: int) -> None:
    program, names = traced(name, dynamic)
    lowered = program.lower(opset=opset)
    assert lowered.model.opset_imports[""] == opset
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    lowered.verify()
    if dynamic:
        torch.manual_seed(1)
        for batch, length in BY_NAME[name].sizes:
            inputs = BY_NAME[name].inputs(batch, length)
            lowered.verify(tuple(inputs[n] for n in names))


def build(entry: Scriptable) -> torch.nn.Module:
    """The model with random weights and statistics, in eval mode."""
    torch.manual_seed(0)
    model = entry.build().eval()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


@functools.lru_cache(maxsize=2)
def program_of(name: str, form: str, dynamic: bool) -> opsetta.Program:
    entry = _BY_NAME[name]
    model = build(entry)
    example = entry.inputs(2, 4)
    if form == "scripted":
        script = torch.jit.script(model)
    else:
        with torch.no_grad():
            script = torch.jit.trace(model, example, check_trace=False)
    shapes = entry.dynamic_shapes if dynamic else None
    if shapes is not None and entry.loops:
        # The number of steps is an input too.
        shapes = {key: {} if wanted is None else wanted for key, wanted in shapes.items()}
    return opsetta.export(script, example, opset=18, dynamic_shapes=shapes)


def scriptable() -> list:
    """Every model in both forms; a trace of a loop holds one number of steps, and is left out."""
    found = []
    for entry in SCRIPTABLE:
        for form in FORMS if not entry.loops else ("scripted",):
            for dynamic in (False, True):
                group = f"{entry.name}-{form}-{'dynamic' if dynamic else 'static'}"
                quick = (7, *_QUICK) if dynamic else (18,)
                found += [
                    pytest.param(entry.name, form, dynamic, opset, id=f"{group}-{opset}",
                                 marks=_marks(opset, group, quick))
                    for opset in _opsets(entry.convolutional)
                ]  # fmt: skip
    return found


@pytest.mark.parametrize(("name", "form", "dynamic", "opset"), scriptable())
def test_scriptable_model_agrees(name: str, form: str, dynamic: bool, opset: int) -> None:
    lowered = program_of(name, form, dynamic).lower(opset=opset)
    assert lowered.model.opset_imports[""] == opset
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    lowered.verify()
    if dynamic:
        torch.manual_seed(1)
        for batch, length in _BY_NAME[name].sizes:
            lowered.verify(_BY_NAME[name].inputs(batch, length))

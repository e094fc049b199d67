"""Real models through TorchScript, traced and scripted, against the TorchScript program itself."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable

import onnx
import pytest
import torch

import opsetta

from ..opsets import is_full_run, named
from ..thinning import Variants
from ..trained_weights import spread_statistics
from .scriptable import SCRIPTABLE, Scriptable
from .zoo import ARCHITECTURES, BY_NAME

OPSETS = (9, 11, 13, 16, 18, 21, 24)
EVERY_OPSET = (7, 8, *OPSETS)
FORMS = ("traced", "scripted")
SIZES = {False: "static", True: "dynamic"}
QUICK_TRACES = ("t5", "llama", "swin", "whisper")
"""The architectures whose traces quick runs export; others hold the same operators."""
_BY_NAME = {model.name: model for model in SCRIPTABLE}


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


def traced(name: str, dynamic: bool) -> tuple[opsetta.Program, list[str]]:
    """The program, and the names of its inputs in the order of the forward's parameters."""
    architecture = BY_NAME[name]
    module = architecture.build()
    torch.manual_seed(0)
    inputs = architecture.inputs(2, 7)
    names = [n for n in inspect.signature(module.forward).parameters if n in inputs]
    example = tuple(inputs[n] for n in names)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        model = _Positional(module, names).eval()
        trace = torch.jit.trace(model, example, check_trace=False, strict=False)
    shapes = [architecture.dynamic_shapes[n] for n in names] if dynamic else None
    return opsetta.export(trace, example, opset=18, dynamic_shapes=shapes), names


def quick(opsets: Iterable[int]) -> list[int]:
    """The opsets that a quick run tests: the lowest and the highest."""
    lowest, *between, highest = opsets
    return [lowest, *between, highest] if is_full_run() else [lowest, highest]


def architectures() -> list:
    """Every architecture; static traces, and those like others, in full runs only."""
    return [
        pytest.param(
            architecture.name,
            dynamic,
            id=f"{architecture.name}-{SIZES[dynamic]}",
            marks=[] if dynamic and architecture.name in QUICK_TRACES else [pytest.mark.sweep],
        )
        for architecture in ARCHITECTURES
        for dynamic in architecture.forms
    ]


@pytest.mark.parametrize(("name", "dynamic"), architectures())
def test_traced_architecture_agrees(name: str, dynamic: bool) -> None:
    program, names = traced(name, dynamic)
    for opset in quick(opset for opset in EVERY_OPSET if opset in BY_NAME[name].opsets):
        with named(opset):
            lowered = program.lower(opset=opset)
            assert lowered.model.opset_imports[""] == opset
            onnx.checker.check_model(lowered.model_proto, full_check=True)
            lowered.verify()
            torch.manual_seed(1)
            for batch, length in BY_NAME[name].sizes if dynamic else ():
                inputs = BY_NAME[name].inputs(batch, length)
                lowered.verify(tuple(inputs[n] for n in names))


def build(entry: Scriptable) -> torch.nn.Module:
    """The model with random weights and statistics, in eval mode."""
    torch.manual_seed(0)
    model = entry.build().eval()
    spread_statistics(model)
    return model


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
    """Every model in both forms; a trace of a loop holds one number of steps, and is left out.

    Quick runs take the scripted form with dynamic sizes, and every third of the others.
    """
    variants = Variants(first=0, step=3)
    return [
        pytest.param(
            entry.name,
            form,
            dynamic,
            id=f"{entry.name}-{form}-{SIZES[dynamic]}",
            marks=[] if dynamic and form == "scripted" else variants.marks(),
        )
        for entry in SCRIPTABLE
        for form in (FORMS if not entry.loops else ("scripted",))
        for dynamic in (False, True)
    ]


@pytest.mark.parametrize(("name", "form", "dynamic"), scriptable())
def test_scriptable_model_agrees(name: str, form: str, dynamic: bool) -> None:
    entry = _BY_NAME[name]
    program = program_of(name, form, dynamic)
    opsets = quick(EVERY_OPSET if entry.convolutional else OPSETS) if dynamic or is_full_run() else [18]
    for opset in opsets:
        with named(opset):
            lowered = program.lower(opset=opset)
            assert lowered.model.opset_imports[""] == opset
            onnx.checker.check_model(lowered.model_proto, full_check=True)
            lowered.verify()
            torch.manual_seed(1)
            for batch, length in entry.sizes if dynamic else ():
                lowered.verify(entry.inputs(batch, length))

"""Models whose Python code reads values of tensors: each exports and agrees, or an error names its line."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch

import opsetta

from . import value_dependent

KINDS = value_dependent.KINDS
OPSETS = [11, *(pytest.param(opset, marks=pytest.mark.sweep) for opset in (13, 17)), 18]


def made(name: str) -> tuple[torch.nn.Module, tuple]:
    torch.manual_seed(0)
    model, args = KINDS[name].make()
    return model.eval(), args


@pytest.fixture(scope="module", params=KINDS)
def exported(request: pytest.FixtureRequest) -> tuple[str, opsetta.Program]:
    name = request.param
    kind = KINDS[name]
    model, args = made(name)
    # Automatic capture tries strict capture only in a process without compiled functions.
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = opsetta.export(model, args, opset=11, specialize=kind.line is not None, **kind.options)
    return name, program


@pytest.mark.parametrize("opset", OPSETS)
def test_the_export_agrees_with_eager(exported: tuple[str, opsetta.Program], opset: int) -> None:
    name, program = exported
    lowered = program if opset == program.opset else program.lower(opset)
    lowered.verify()
    torch.manual_seed(1)
    for args in KINDS[name].others():
        lowered.verify(args)


def test_only_what_depends_on_inputs_is_specialized(exported: tuple[str, opsetta.Program]) -> None:
    name, program = exported
    line = KINDS[name].line
    assert {entry.code for entry in program.specializations} == ({line} - {None})


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.line is not None])
def test_a_path_that_inputs_decide_is_refused_at_its_line(name: str) -> None:
    model, args = made(name)
    lines, start = inspect.getsourcelines(type(model))
    at = next(start + i for i, text in enumerate(lines) if text.strip() == KINDS[name].line)
    with pytest.raises(opsetta.CaptureError, match="specialize=True") as raised:
        opsetta.export(model, args, **KINDS[name].options)
    assert f"value_dependent.py:{at}, in forward: {KINDS[name].line}" in str(raised.value).splitlines()[0]

"""Random programs give at every opset what eager PyTorch gives."""

import copy
import importlib
import importlib.util

import pytest
import torch
import torch.utils._pytree as pytree

import opsetta

from . import programs, scripted_grammar, scripted_programs

PRESENT = [
    name
    for name, module in programs.GENERATORS.items()
    if importlib.util.find_spec(f"{__package__}.{module}") is not None
]


QUICK = 6
"""The number of programs in quick runs, by generator."""


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param(name, first, marks=[pytest.mark.sweep] if first >= QUICK else [])
        for name in PRESENT
        for first in range(0, 60, 10)
    ],
)
def test_programs_give_what_eager_gives(name: str, first: int, sweep: bool) -> None:
    outcomes = programs.run_range((name, first, first + (10 if sweep else QUICK)), each=2)
    failed = [outcome for outcome in outcomes if outcome.kind in (programs.WRONG, programs.CRASHED)]
    assert not failed, "\n\n".join(map(str, failed))
    assert any(outcome.kind == programs.RIGHT for outcome in outcomes)


def _judged(model, changed, monkeypatch, *arguments: torch.Tensor) -> str:
    """The kind of outcome of a program whose exported form gives something else."""
    monkeypatch.setattr(opsetta.Program, "__call__", lambda self, *given: changed(model(*given)))
    [outcome] = programs.judge(programs.Program(0, model, arguments, [], "text"), [13])
    return outcome.kind


VALUES = torch.tensor([1.5, -2.0, 0.0, 3.0])


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (torch.sin, lambda y: y * 1.001),
        (torch.neg, lambda y: y + 0.0),
        (torch.log, lambda y: y.nan_to_num()),
        (torch.round, lambda y: y + 1e-3),
        (lambda x: x.argmax(), lambda y: y + 1),
        (lambda x: x * 2, lambda y: y.double()),
        (lambda x: x * 2, lambda y: y[:3]),
        (lambda x: torch.max_pool1d(x.log()[None, None], 2), lambda y: y + 1),
        (lambda x: x.half().sin().float(), lambda y: y + 0.1),
    ],
    ids=[
        "value",
        "sign of zero",
        "NaN",
        "whole number",
        "index",
        "type",
        "shape",
        "window without NaN",
        "half",
    ],
)
def test_another_result_is_wrong(model, changed, monkeypatch):
    assert _judged(model, changed, monkeypatch, VALUES) == programs.WRONG


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (lambda x: x.sin() * 1e6 - x.sin() * 1e6 + x.cos().exp() - x.exp().cos(), lambda y: y + 1e-7),
        (lambda x: (x.exp() * 1e8 + x).floor(), lambda y: y + 8.0),
        (lambda x: (x.exp() - x.exp()).sum(), lambda y: -y),
        (lambda x: ((x.abs() + 1) * 1e20).to(torch.int64), lambda y: y + 1),
        (lambda x: torch.max_pool1d(x.log()[None, None], 2).frac(), lambda y: y.nan_to_num(0.3)),
        (lambda x: x.half().sin().float(), lambda y: y * 1.0001),
        (lambda x: (x.half().abs() * 4e4).sqrt(), lambda y: y.where(y.isfinite(), 346.4)),
        (lambda x: torch.searchsorted(x.half().sin().sort()[0], x.half().sin()), lambda y: y + (y != 1)),
        (lambda x: torch.einsum("ij,ij->i", x[:, None] * 0, x[:, None]), lambda y: -y),
        (lambda x: torch.searchsorted(x.sqrt().sort()[0], x), lambda y: y - 1),
        (
            lambda x: torch.nn.functional.interpolate(x.log()[None, None, None], (3, 4), mode="bilinear"),
            lambda y: torch.where(y == y[..., -1:], y, float("nan")),
        ),
    ],
    ids=[
        "cancellation",
        "rounding to a whole number",
        "sign of a sum",
        "out of range",
        "NaN in a window",
        "half kept in float",
        "half beyond its range kept in float",
        "comparison of halves",
        "sign of einsum",
        "sequence with NaN",
        "interpolation beside infinity",
    ],
)
def test_a_result_that_rounding_decides_is_right(model, changed, monkeypatch):
    assert _judged(model, changed, monkeypatch, VALUES) == programs.RIGHT


@pytest.mark.parametrize("seed", [967, 2154, 2336])
def test_the_reference_of_a_scripted_program_is_not_optimized(seed):
    """TorchScript's optimizer changes what these programs give."""
    program = scripted_programs.program(seed)
    text = scripted_grammar.PRELUDE + program.source
    namespace = {"__name__": __name__}
    exec(compile(text, f"<seed {seed}>", "exec", dont_inherit=True), namespace)
    for arguments in (program.example, *program.inputs):
        expected = namespace["forward"](*copy.deepcopy(arguments))
        given = program.reference(*copy.deepcopy(arguments))
        torch.testing.assert_close(pytree.tree_leaves(given), pytree.tree_leaves(expected))

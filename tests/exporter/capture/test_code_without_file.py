"""Models whose code is in no file: of a console, of `python -`, of exec and of a notebook."""

from __future__ import annotations

import importlib
import json
import linecache
import pathlib
import subprocess
import sys
import types
from typing import Any

import pytest
import torch

import opsetta

from ...opsets import is_full_run
from . import models_without_file

STEP = 1 if is_full_run() else 2
"""Quick runs take each second model."""

CODE = """
import torch
from torch import nn

class Initialized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("is_ready", torch.tensor(True))
        self.linear = nn.Linear(3, 3)
    def forward(self, x):
        if not self.is_ready:
            return x
        return self.linear(x)

class Item(nn.Module):
    def forward(self, x):
        return x * float(x.sum().item())

class Asserts(nn.Module):
    def forward(self, x):
        assert (x == x).all(), "no NaN"
        return x * 2

class Raises(nn.Module):
    def forward(self, x):
        if torch.isnan(x).any() or x.dim() == 7:
            message = "NaN"
            raise ValueError(message)
        return x * 2

class Caught(nn.Module):
    def forward(self, x):
        try:
            assert (x > 0).all()
        except AssertionError:
            return x
        return x * 2

class Repeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = nn.Parameter(torch.tensor(3.0))
    def forward(self, x):
        for _ in range(int(self.count)):
            x = x + 1
        return x

class Cond(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x
"""
NAMES = ("Initialized", "Asserts", "Raises", "Repeats", "Cond")


def console(name: str | None, file: str) -> dict[str, Any]:
    """The names that the code defines, as code of a console or notebook."""
    space: dict[str, Any] = {} if name is None else {"__name__": name}
    exec(compile(CODE, file, "exec"), space)
    return space


SPACES = {
    "exec": ("executed", "<string>"),
    "exec without a name": (None, "<string>"),
    "console": ("__console__", "<stdin>"),
    "notebook": ("notebook", "<ipython-input-1-0a1b>"),
    "file that is gone": ("gone", "gone.py"),
}


@pytest.mark.parametrize("space", SPACES)
def test_a_model_is_exported_as_from_a_file(space: str) -> None:
    names = console(*SPACES[space])
    for name in NAMES:
        model = names[name]().eval()
        for shapes in (None, ({0: "batch"},)):
            program = opsetta.export(model, (torch.ones(2, 3),), dynamic_shapes=shapes, capture="direct")
            program.verify()


def test_an_assertion_whose_error_is_caught_has_two_sides() -> None:
    for space in ("exec", "console"):
        model = console(*SPACES[space])["Caught"]().eval()
        program = opsetta.export(model, (torch.ones(2, 3),), capture="direct")
        for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.tensor([[1.0, -1.0, 2.0], [3.0, 4.0, 5.0]])):
            program.verify((x,))


CAUGHT = """
def elements(x):
    try:
        assert (x > 0).all()
    except AssertionError:
        return x
    return x * 2

def lengths(x):
    positive = x[x > 0]
    try:
        assert positive.shape[0] != 0, "none"
    except AssertionError:
        return x
    return positive

def check(x):
    assert x.sum() > 0

def called(x):
    try:
        check(x)
    except Exception:
        return x
    return x * 2
"""


@pytest.mark.parametrize("name", ["elements", "lengths", "called"])
def test_an_assertion_is_not_left_out_if_its_error_is_caught(name: str, tmp_path: pathlib.Path) -> None:
    # pytest rewrites the assertions of its own modules.
    path = tmp_path / "caught.py"
    path.write_text(CAUGHT)
    for file in ("<string>", str(path)):
        space: dict[str, Any] = {"__name__": "caught"}
        exec(compile(CAUGHT, file, "exec"), space)
        for way in ("auto", "direct"):
            if name == "called":
                with pytest.raises(opsetta.CaptureError, match="A branch depends"):
                    opsetta.export(space[name], (torch.ones(2, 3),), capture=way)
                continue
            program = opsetta.export(space[name], (torch.ones(2, 3),), capture=way)
            for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.tensor([[1.0, -1.0, 2.0], [3.0, 4.0, 5.0]])):
                program.verify((x,))


@pytest.mark.parametrize("space", SPACES)
def test_a_refusal_lacks_the_line_alone(space: str) -> None:
    with pytest.raises(opsetta.CaptureError, match="A branch depends on the values of a tensor"):
        opsetta.export(console(*SPACES[space])["Branches"]().eval(), (torch.ones(2, 3),))


def test_lines_of_a_notebook_are_shown() -> None:
    file = "<ipython-input-2-0a1b>"
    linecache.cache[file] = (len(CODE), None, CODE.splitlines(True), file)
    try:
        model = console("notebook", file)["Branches"]().eval()
        with pytest.raises(opsetta.CaptureError, match=r"return x \* 2 if x.sum\(\) > 0 else x"):
            opsetta.export(model, (torch.ones(2, 3),))
    finally:
        del linecache.cache[file]


def test_a_module_without_a_file_is_one() -> None:
    module = types.ModuleType("opsetta_tests_in_memory")
    sys.modules[module.__name__] = module
    try:
        exec(CODE, vars(module))
        opsetta.export(module.Initialized().eval(), (torch.ones(2, 3),)).verify()
    finally:
        del sys.modules[module.__name__]


@pytest.fixture(scope="module")
def outcomes_from_a_file(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "models_from_a_file.py").write_text(models_without_file.CODE)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("models_from_a_file").outcomes(STEP)
    finally:
        sys.path.remove(str(folder))
        del sys.modules["models_from_a_file"]


def differences(outcomes: dict[str, str], expected: dict[str, str]) -> dict[str, tuple[str, str]]:
    assert outcomes.keys() <= expected.keys()
    return {name: (expected[name], outcomes[name]) for name in outcomes if outcomes[name] != expected[name]}


@pytest.mark.parametrize("space", [{}, {"__name__": "executed"}])
def test_code_of_exec_is_exported_or_refused_as_from_a_file(
    space: dict[str, Any], outcomes_from_a_file: dict[str, str]
) -> None:
    assert sum(" " in each for each in outcomes_from_a_file.values()) >= 6 // STEP
    space = dict(space)
    exec(compile(models_without_file.CODE, "<string>", "exec"), space)
    outcomes = space["outcomes"](STEP)
    assert len(outcomes) == len(outcomes_from_a_file)
    assert not differences(outcomes, outcomes_from_a_file)


def test_code_of_an_input_is_exported_or_refused_as_from_a_file(
    outcomes_from_a_file: dict[str, str],
) -> None:
    # The import of torch and the exports take long in a process that has nothing in memory.
    step = 1 if is_full_run() else 3
    program = (
        f"{models_without_file.CODE}\nresults = outcomes({STEP * step})\n{CODE}\nimport json, opsetta\n"
        "opsetta.export(Initialized().eval(), (torch.ones(2, 3),), dynamic_shapes=({0: 'n'},)).verify()\n"
        "print(json.dumps(results))\n"
    )
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert len(outcomes) == len(list(outcomes_from_a_file)[::step])
    assert not differences(outcomes, outcomes_from_a_file)


def test_a_restriction_names_no_line_of_the_caller() -> None:
    space: dict[str, Any] = {"__name__": "executed"}
    exec(compile(models_without_file.CODE, "<console>", "exec"), space)
    program = opsetta.export(
        space["Quotient"]().eval(), (torch.ones(4, 3),), dynamic_shapes=({0: "rows"},), capture="direct"
    )
    assert {each.line.partition(":")[0] for each in program.dimensions["rows"].restrictions} == {"<console>"}

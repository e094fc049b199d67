"""Warnings name the line of the caller, and commands print no line of Python."""

from __future__ import annotations

import inspect
import sys
import warnings

import pytest
import torch

import opsetta
from opsetta import torch_onnx
from opsetta.exporter.command_line.cli import main
from opsetta.exporter.sweeps.zoo.python_files import list_models_or_error
from opsetta.registration.warning import command_line_text

X = torch.ones(1, 2)


def training() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


CALLS = [
    lambda: opsetta.export(training(), X),
    lambda: opsetta.export(training(), X).lower(9),
    lambda: opsetta.export(Counting().eval(), X, mutations="drop"),
    lambda: torch_onnx.export(training(), (X,), opset_version=13, training=torch.onnx.TrainingMode.PRESERVE),
    lambda: torch_onnx.export(training(), (X,), opset_version=13, input_names=["x", "y"]),
    lambda: torch_onnx.unregister_custom_op_symbolic("mylib::unknown", 9),
]


@pytest.mark.parametrize("call", CALLS)
def test_warnings_name_the_line_of_the_caller(call) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert caught
    line = inspect.getsourcelines(call)[1]
    assert {(warning.filename, warning.lineno) for warning in caught} == {(__file__, line)}


FACTORY = """
import warnings
import torch

def model():
    warnings.warn("the factory warns")
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()), (torch.ones(1, 2),)
"""


def test_commands_print_warnings_without_python(tmp_path, capsys) -> None:
    (tmp_path / "factory.py").write_text(FACTORY)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        # Pytest records warnings; print them as Python does.
        warnings.showwarning = lambda *args: print(warnings.formatwarning(*args[:4]), file=sys.stderr, end="")
        with pytest.raises(SystemExit):
            main(
                [
                    "export",
                    f"{tmp_path / 'factory.py'}:model",
                    "--opset",
                    "13",
                    "-o",
                    str(tmp_path / "m.onnx"),
                ]
            )
    lines = capsys.readouterr().err.splitlines()
    warning = "the model is exported in training mode; for inference, call model.eval() first"
    assert f"opsetta: warning: {warning}" in lines
    assert f"{tmp_path / 'factory.py'}:6: UserWarning: the factory warns" in lines
    assert not any(line.startswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise ValueError('broken zoo')", "raised ValueError: broken zoo (at broken_zoo.py:1)"),
        ("x = (", "raised SyntaxError: '(' was never closed"),
        (
            "import no_such_module",
            "raised ModuleNotFoundError: No module named 'no_such_module' (at broken_zoo.py:1)",
        ),
        ("MODELS = {'a': 3}", "MODELS['a'] in"),
    ],
)
def test_errors_of_a_zoo_are_one_line(content, message, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "broken_zoo.py").write_text(content)
    error = list_models_or_error(str(tmp_path / "broken_zoo.py"))
    assert message in error
    assert "\n" not in error


def test_a_sweep_says_nothing_else(tmp_path) -> None:
    (tmp_path / "zoo.py").write_text("raise ValueError('broken zoo')")
    message = r"^'.*zoo\.py' raised ValueError: broken zoo \(at zoo\.py:1\)$"
    with pytest.raises(opsetta.OpsettaError, match=message):
        opsetta.sweep(tmp_path / "zoo.py", opsets=[13])


@pytest.mark.parametrize("module", ["no_such_module", "os.path.nothing", "email"])
def test_programs_that_do_not_exist_are_one_line(module, capsys) -> None:
    from opsetta.torch_onnx.exporting.script_runner import main as run

    assert run(["-m", module]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m opsetta.torch_onnx: ")
    assert module.partition(".")[0] in line


@pytest.mark.parametrize("is_of_opsetta", [True, False])
def test_names_in_warnings_do_not_control_the_terminal(is_of_opsetta) -> None:
    warning = UserWarning("a node '\x1b[31m'")
    warning.is_of_opsetta = is_of_opsetta
    assert command_line_text(warning, UserWarning, "m.py", 1).endswith(r"a node '\x1b[31m'" + "\n")

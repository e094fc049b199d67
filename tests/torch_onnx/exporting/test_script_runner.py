"""`python -m opsetta.torch_onnx`: a program runs as with `python`, and its exports go to opsetta."""

import os
import sys
import zipfile

import pytest
import torch

from opsetta.registration.opsets import OPSET_RANGE
from opsetta.torch_onnx.exporting import script_runner
from opsetta.torch_onnx.exporting.script_runner import main

from .files import opset_of

PROGRAM = """\
import sys, torch, pickle, neighbour

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def fail():
    raise ValueError("from the program")

if __name__ == "__main__":
    print(sys.argv, sys.path[0], __name__, __file__)
    pickle.loads(pickle.dumps(Model()))
    neighbour.write(Model(), "model.onnx")
    exec(sys.argv[1] if len(sys.argv) > 1 else "")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text(
        "import torch\nfrom torch.onnx import export\n"
        "def write(model, path):\n    export(model, (torch.ones(2, 3),), path, opset_version=18)\n"
    )
    monkeypatch.chdir(tmp_path)
    before = sys.argv[:], sys.path[:], sys.modules["__main__"]
    yield tmp_path
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    sys.modules.pop("neighbour", None)


def test_a_script_runs_as_python_runs_it(folder, capsys):
    assert main([str(folder / "program.py"), "pass", "--more"]) == 0
    shown = [str(folder / "program.py"), "pass", "--more"]
    assert capsys.readouterr().out.strip() == f"{shown} {folder} __main__ {shown[0]}"
    assert opset_of("model.onnx") == 18


@pytest.mark.parametrize("option", [["--opset", "12"], ["--opset=12"]])
def test_a_module_runs_at_the_opset_of_the_option(option, folder, capsys):
    assert main([*option, "-m", "program"]) == 0
    assert capsys.readouterr().out.startswith(f"['{folder / 'program.py'}'] {folder} __main__")
    assert opset_of("model.onnx") == 12


def test_a_folder_and_an_archive_run(folder):
    source = "import sys, torch; torch.onnx.export(torch.nn.ReLU(), (torch.ones(1),), sys.argv[1])"
    (folder / "package").mkdir()
    (folder / "package" / "__main__.py").write_text(source)
    assert main(["--opset", "9", "package", "a.onnx"]) == 0
    with zipfile.ZipFile("program.zip", "w") as archive:
        archive.writestr("__main__.py", source)
    assert main(["--opset", "10", "program.zip", "b.onnx"]) == 0
    assert (opset_of("a.onnx"), opset_of("b.onnx")) == (9, 10)


def test_the_exit_code_of_the_program_is_kept():
    with pytest.raises(SystemExit) as ended:
        main(["program.py", "sys.exit(7)"])
    assert ended.value.code == 7


def test_a_traceback_begins_in_the_program(capsys):
    assert main(["program.py", "fail()"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith('  File "program.py", line')
    assert lines[-1] == "ValueError: from the program"
    assert "opsetta" not in "".join(lines)


def test_a_refused_export_shows_one_traceback_without_lines_of_opsetta(capsys):
    code = "neighbour.write(lambda x: x.undefined(), 'model.onnx')"
    assert main(["program.py", code]) == 1
    shown = capsys.readouterr().err
    assert shown.count("Traceback (most recent call last)") == 1
    assert "AttributeError: 'Tensor' object has no attribute 'undefined'" in shown
    assert "raise " not in shown.partition("CaptureError")[0]


def test_an_interrupt_ends_the_process_as_python_ends_it(monkeypatch, capsys):
    sent = []
    monkeypatch.setattr(script_runner.os, "kill", lambda *signal: sent.append(signal))
    monkeypatch.setattr(script_runner.signal, "signal", lambda *_: None)
    main(["program.py", "raise KeyboardInterrupt"])
    assert sent == [(os.getpid(), 2)]
    assert capsys.readouterr().err.strip().endswith("KeyboardInterrupt")


def test_threads_of_the_program_export_to_opsetta_too(folder):
    late = "import threading; threading.Timer(0.2, neighbour.write, (Model(), 'late')).start()"
    assert main(["--opset", "11", "program.py", late]) == 0
    assert opset_of("late") == 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a script or -m MODULE is missing"),
        (["-m"], "-m needs the name of a module"),
        (["--wrong", "program.py"], "unknown option --wrong"),
        (["--opset", "twelve", "program.py"], "--opset takes a number, not 'twelve'"),
        (["--opset", "99", "program.py"], f"--opset takes a number from {OPSET_RANGE}, not 99"),
        (["missing.py"], "there is no file 'missing.py'"),
    ],
)
def test_wrong_usage(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_syntax_error_is_told(folder, capsys):
    (folder / "broken.py").write_text("def f(:\n")
    assert main(["broken.py"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == '  File "broken.py", line 1'


def test_help_says_how(capsys):
    assert main(["--help"]) == 0
    assert "python -m opsetta.torch_onnx [--opset N]" in capsys.readouterr().out
    assert torch.onnx.export.__module__ == "torch.onnx"

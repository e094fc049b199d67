"""Values of the command line are those that typer makes, without pydantic."""

import pathlib
import subprocess
import sys
from typing import Annotated

import onnx
import pytest
import typer
from typer.testing import CliRunner

from opsetta.exporter.command_line.plain_values import PlainCommand, PlainGroup


def _print_values(
    model: pathlib.Path,
    names: Annotated[list[str] | None, typer.Argument()] = None,
    data: Annotated[list[pathlib.Path] | None, typer.Option()] = None,
    opset: Annotated[int | None, typer.Option()] = None,
    runs: Annotated[int, typer.Option(min=1)] = 3,
    tolerance: float = 0.5,
    text: str = "",
    size: Annotated[int | None, typer.Option(parser=lambda value: 2 * int(value))] = None,
    tuned: Annotated[str | None, typer.Option(callback=lambda value: value and value.upper())] = None,
    quick: bool = False,
) -> None:
    print([model, names, data, opset, runs, tolerance, text, size, tuned, quick])


def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: value and print("one"))
    ] = False,
) -> None:
    print(version)


def _run(arguments, is_plain):
    application = typer.Typer(callback=_describe, cls=PlainGroup if is_plain else None)
    application.command("values", cls=PlainCommand if is_plain else None)(_print_values)
    outcome = CliRunner().invoke(application, arguments, env={"COLUMNS": "80"})
    return outcome.exit_code, outcome.output


@pytest.mark.parametrize(
    "arguments",
    [
        "m.onnx",
        "m.onnx a b --data x --data /",
        "m.onnx --opset 9 --runs 4 --tolerance 1e-3 --text x --size 4 --tuned y --quick",
        "/ --opset -3",
        "m.onnx --opset 12345678901234567890",
        "m.onnx --opset nine",
        "m.onnx --opset 9.0",
        "m.onnx --runs 0",
        "m.onnx --size x",
        "m.onnx --help",
        "",
    ],
)
def test_values_are_those_of_typer(arguments):
    plain, usual = (_run(["values", *arguments.split()], is_plain) for is_plain in (True, False))
    assert plain == usual


def test_options_of_the_group_are_those_of_typer():
    arguments = ["--version", "values", "m.onnx"]
    assert _run(arguments, True) == _run(arguments, False)
    assert _run(arguments, True)[1].startswith("one")


def test_an_unreadable_file_is_refused_as_by_typer(tmp_path, monkeypatch):
    path = tmp_path / "secret.onnx"
    path.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert _run(["values", str(path)], True) == _run(["values", str(path)], False)
    assert _run(["values", str(path)], True)[0] == 2


def test_a_command_on_a_small_file_imports_no_pydantic(tmp_path):
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[3] x) => (float[3] y) {y = Relu(x)}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code = """
import sys
from opsetta.exporter.command_line.cli import main
for arguments in (["convert", "m.onnx", "--opset", "9", "-o", "n.onnx"], ["info", "n.onnx"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
assert not {"pydantic", "sympy", "opsetta.symbolics.aten"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=120, check=True)

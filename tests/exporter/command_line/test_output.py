"""`-o` of the commands: a file, standard output, a pipe."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
import threading

import onnx
import pytest
from onnx import TensorProto, helper

from opsetta.exporter.command_line import cli
from opsetta.exporter.command_line.terminal.output import Output
from opsetta.registration import ModelFileError


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "x"
    )
    return tmp_path / "x"


def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "opsetta.exporter.command_line.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=environment, timeout=300, check=False)


def opset_of(content: bytes) -> int:
    return onnx.load_from_string(content).opset_import[0].version


def test_standard_output_has_the_model_and_nothing_else(model: pathlib.Path) -> None:
    done = run("convert", model, "--opset", "12", "-o", "-", "--json")
    assert opset_of(done.stdout) == 12
    found = json.loads(done.stderr)
    assert (found["file"], found["bytes"]) == ("-", len(done.stdout))
    done = run("convert", model, "--opset", "12", "-o", "/dev/stdout")
    assert opset_of(done.stdout) == 12
    assert b"opset 12, 1 node," in done.stderr


def test_the_users_code_does_not_print_into_the_model(
    tmp_path: pathlib.Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    talking = "print('the file talks')\nimport torch\ndef f(): return torch.relu, (torch.ones(2),)"
    (tmp_path / "talking.py").write_text(talking)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as done:
        cli.main(["export", f"{tmp_path / 'talking.py'}:f", "--opset", "9", "-o", "-"])
    assert done.value.code == 0
    out, err = capfdbinary.readouterr()
    assert opset_of(out) == 9
    assert b"the file talks" in err


def test_a_pipe_gets_the_model_and_standard_output_the_report(
    model: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with pytest.raises(SystemExit) as done:
        cli.main(["convert", str(model), "--opset", "12", "-o", str(tmp_path / "pipe"), "--json"])
    reader.join()
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == len(received[0])
    assert opset_of(received[0]) == 12


@pytest.mark.parametrize("options", [["-o", "-"], ["-o", "/dev/stdout"]])
def test_external_data_needs_a_folder(model: pathlib.Path, options: list[str]) -> None:
    done = run("convert", model, *options, "--external-data")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"external data needs a path" in done.stderr


def test_the_size_includes_the_data_file(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [500])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [500])],
        [helper.make_tensor("w", TensorProto.FLOAT, [500], range(500))],
    )
    imports = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "x.onnx")
    with pytest.raises(SystemExit):
        cli.main(
            ["simplify", str(tmp_path / "x.onnx"), "-o", str(tmp_path / "y"), "--external-data", "--json"]
        )
    sizes = [path.stat().st_size for path in tmp_path.iterdir() if path.name.startswith("y")]
    assert len(sizes) == 2
    assert json.loads(capsys.readouterr().out)["bytes"] == sum(sizes)


class Terminal(io.StringIO):
    buffer = io.BytesIO()

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdout", "match"), [(Terminal(), "is a terminal"), (None, "standard output is closed")]
)
def test_standard_output_that_takes_no_model(
    monkeypatch: pytest.MonkeyPatch, stdout: object, match: str
) -> None:
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(ModelFileError, match=match):
        Output(pathlib.Path("-"))


def test_a_reader_that_leaves_is_one_line(model: pathlib.Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "opsetta.exporter.command_line.cli", "convert", str(model), "-o", "-"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"opsetta: standard output cannot be written: Broken pipe\n")

"""The command `opsetta report`: pages of factories and files, exit codes, and what it prints."""

import json
import pathlib

import pytest
import torch

import opsetta
from opsetta.exporter.command_line import cli

EXAMPLES = pathlib.Path(opsetta.__file__).parent / "examples" / "model_factory.py"
FAST = ("--opsets", "none", "--no-latency")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command in an empty folder; gives the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main(["report", *map(str, arguments)])
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


def test_a_factory(run, tmp_path):
    code, out, _ = run(f"{EXAMPLES}:classifier", "-o", "report.html", "--opset", 12, "--title", "name", *FAST)
    assert code == 0
    assert out.startswith("report.html: opset 12, ")
    assert "agrees with eager PyTorch: largest absolute error" in out
    assert "<title>name" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_facts_as_json(run):
    code, out, _ = run(f"{EXAMPLES}:pair", "-o", "report.html", "--opsets", "9,18", "--json", "--no-compare")
    assert code == 0
    facts = json.loads(out)
    assert [row["opset"] for row in facts["opsets"]] == [9, 17, 18]
    assert facts["parity"] is None
    assert all(row["latency"] > 0 for row in facts["opsets"])


def test_a_model_that_cannot_be_written_has_a_page_and_exit_code_1(run, tmp_path):
    code, out, _ = run(f"{EXAMPLES}:clipped", "-o", "report.html", "--opset", 12, *FAST)
    assert code == 1
    assert out == "report.html: opset 12 is not possible: example::soft_clip.default\n"
    assert "example::soft_clip" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_file(run, tmp_path):
    opsetta.export(torch.nn.Softmax(-1).eval(), (torch.randn(2, 3, 4),), opset=9).save(
        tmp_path / "model.onnx"
    )
    code, out, _ = run("model.onnx", "-o", "report.html", "--opset", 18, *FAST)
    assert code == 0
    assert "opset 18" in out
    assert "agrees with the original file" in out
    code, out, _ = run("model.onnx", "-o", "same.html", *FAST)
    assert (code, out) == (0, "same.html: opset 9, 1 node\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.onnx", "-o", "report.html"), "missing.onnx"),
        ((f"{EXAMPLES}:pair", "-o", "missing/report.html"), "missing"),
        ((f"{EXAMPLES}:pair", "-o", "report.html", "--opsets", "nine"), "--opsets"),
        ((f"{EXAMPLES}:pair", "-o", "report.html", "--opset", "99"), "99"),
    ],
)
def test_errors_are_messages(run, arguments, message, tmp_path):
    code, _, err = run(*arguments)
    assert code not in (0, None)
    assert message in str(code) + err
    assert not (tmp_path / "report.html").exists()

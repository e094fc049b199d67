"""`opsetta sweep`: the commands of its page, its summary, exit codes and messages."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal

import pytest

from opsetta.exporter.command_line.options.sweep import parse_bytes
from opsetta.exporter.sweeps.results.result_files import ResultsFile, read_rows
from opsetta.exporter.sweeps.rows import COLUMNS, STATUSES, Row

from ...test_documentation import blocks_of, commands_of
from .conftest import save

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8")


@pytest.fixture
def run(run, engine):
    """Run the command line, whose sweeps share an engine."""
    return run


def test_the_page_runs_as_it_is_written(run):
    """Here and not with the other documents, because all of its sweeps can share an engine."""
    blocks = blocks_of(PAGE)
    [zoo] = [block for block in blocks if block.title]
    pathlib.Path(zoo.title).write_text(zoo.text)
    commands = [command for block in blocks if block.language == "sh" for _, command in commands_of(block)]
    for command in commands:
        code, out, errors = run(*shlex.split(command)[1:])
        assert code == 0, f"{command}\n{out}{errors}"
    assert len(commands) == 4
    assert len(read_rows("results.sqlite")) == 4
    kept = read_rows("results.parquet")
    assert [row.status for row in kept] == ["passed"] * 4
    row = next(row for row in kept if (row.model, row.opset) == ("classifier", 9))
    assert (row.composed, row.composed_operators) == (1, "aten::gelu.default")
    assert (row.nodes > 4, row.weight_bytes >= 4 * (4 * 3 * 9 + 4 + 144 * 10 + 10)) == (True, True)
    assert 0 <= row.parity_error < 1e-4
    assert min(row.loading_seconds, row.capture_seconds, row.lowering_seconds, row.comparison_seconds) > 0
    assert row.seconds > row.capture_seconds
    assert row.peak_memory > 10_000_000
    assert row.latency_ms > 0
    shapes = {(row.shape, row.dtype): row for row in read_rows("results.sqlite")}
    assert shapes["own", "float16"].weight_bytes < shapes["own", "own"].weight_bytes
    [program] = [block.text for block in blocks if block.language == "py"]
    exec(compile(program, "docs/sweep.md", "exec"), names := {})
    assert names["results"].executed == 0
    assert set(names["results"].rows) < set(kept)


def test_the_page_lists_every_column_and_status():
    described = re.findall(r"^\| (`.*?) \|", PAGE[PAGE.index("## Rows") :], re.MULTILINE)
    named = [name for cell in described for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted([*COLUMNS, *STATUSES])
    assert all(f"| `{status}` | {text} |" in PAGE for status, text in STATUSES.items())


def test_the_summary_says_what_did_not_pass(run):
    save("relu.onnx", "Relu")
    pathlib.Path("broken.onnx").write_text("no model")
    code, out, errors = run("sweep", ".", "--opsets", "13-14", "--html", "matrix.html")
    assert code == 1
    assert errors.splitlines()[0] == "1/4 broken.onnx opset 13: refused"
    lines = out.splitlines()
    assert lines[0].split() == ["opset", "jobs", "passed", "refused"]
    assert lines[1].split() == ["13", "2", "1", "1"]
    assert lines[3].startswith("broken.onnx opset 13: refused: ModelFileError: ")
    assert lines[-1] == "4 jobs: 2 passed, 2 refused"
    assert "4 jobs" in pathlib.Path("matrix.html").read_text()


def test_json_has_every_row(run):
    save("relu.onnx", "Relu")
    code, out, _ = run("sweep", "relu.onnx", "--opsets", "13", "--runs", "0", "--json")
    found = json.loads(out)
    assert (code, found["executed"], found["counts"]) == (0, 1, {"passed": 1})
    assert [entry["model"] for entry in found["rows"]] == ["relu.onnx"]
    assert list(found["rows"][0]) == [field.name for field in dataclasses.fields(Row)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.py"], 1, "there is no file or folder 'none.py'"),
        (["."], 1, "has no .onnx file"),
        ([".", "--opsets", "9,x"], 2, "--opsets '9,x': write opsets and ranges"),
        ([".", "--opsets", "18-9"], 2, "names no opset"),
        ([".", "--memory", "much"], 2, "'much' is not an amount of memory"),
        (["none.sqlite", "--html", "matrix.html"], 1, "there is no results file 'none.sqlite'"),
        (["none.sqlite"], 2, "draw them with --html FILE"),
        ([".", "--engine", "ray://nowhere"], 1, "no .onnx file"),
    ],
)
def test_errors_are_short(run, arguments, code, message):
    found, out, errors = run("sweep", *arguments)
    assert found == code
    assert message in re.sub(r"[\s│]+", " ", errors)
    assert not out
    assert list(pathlib.Path().iterdir()) == []


def test_amounts_of_memory():
    assert [parse_bytes(text) for text in ("4GB", "1.5 g", "500mb", "12")] == [
        4 * 10**9,
        1_500_000_000,
        5 * 10**8,
        12,
    ]


def test_an_interrupt_leaves_a_file_to_go_on_with(run, tmp_path, monkeypatch):
    for number in range(4):
        save(tmp_path / f"{number}.onnx", "Relu")
    add = ResultsFile.add

    def interrupting(self, row):
        add(self, row)
        if len(self.rows) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ResultsFile, "add", interrupting)
    # A shell's background processes ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, errors = run("sweep", tmp_path, "--opsets", "13", "-o", "r.parquet")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert "opsetta: interrupted; 'r.parquet' has the rows so far" in errors
    assert len(read_rows("r.parquet")) == 2

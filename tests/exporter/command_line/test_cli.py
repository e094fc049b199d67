"""The command line: results, exit codes, messages, and what it leaves behind."""

import json
import pathlib
import re
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import opsetta
from opsetta.exporter.command_line import cli
from opsetta.exporter.command_line.application import make_application
from opsetta.exporter.command_line.options import factory
from opsetta.exporter.command_line.terminal import progress
from opsetta.exporter.command_line.terminal.tables import row, show, table
from opsetta.exporter.files import summary
from opsetta.exporter.files.reading import to_ir
from opsetta.exporter.files.reading.subgraphs import with_subgraphs
from opsetta.registration import OpsettaError
from opsetta.registration.opsets import OPSET_RANGE
from opsetta.tests.document_programs import run_program

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
CLASSIFIER = f"{EXAMPLES / 'model_factory.py'}:classifier"
PAIR = f"{EXAMPLES / 'model_factory.py'}:pair"

FACTORIES = """
import torch
print("the file talks")

def fine():
    print("the factory talks")
    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),), {}

def raising():
    raise ValueError("first line\\nsecond line")

def leaving():
    raise SystemExit(3)

def number():
    return 3

def no_model():
    return {"args": ()}

def unknown_key():
    return {"model": torch.relu, "opset": 9}

def not_a_model():
    return 3, ()

def unexportable():
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x).real
    return Model().eval(), (torch.eye(3),)

not_callable = 3
"""


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line in an empty folder; gives the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factories.py").write_text(FACTORIES)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = caught.value.code
        if isinstance(code, str):
            return 1, captured.out, captured.err + code + "\n"
        return code or 0, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The classifier of the examples, exported by the command line in a process of its own."""
    folder = tmp_path_factory.mktemp("exported")
    arguments = ["export", CLASSIFIER, "--opset", "12", "-o", "c.onnx", "--verify", "--json"]
    # Errors and warnings would be printed beside the JSON, which then cannot be read.
    printed = run_program(f"opsetta_command({list(map(str, arguments))})", folder)
    return folder / "c.onnx", json.loads(printed)


def test_export_writes_the_opset_asked_for_and_reports(exported):
    path, report = exported
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 12)]
    assert (report["opset"], report["inputs"], report["outputs"]) == (12, ["image"], ["logits"])
    assert report["bytes"] == path.stat().st_size
    assert report["nodes"] == len(model.graph.node)
    assert report["verification"]["max_absolute_error"] < 1e-4
    assert [entry["name"] for entry in report["verification"]["outputs"]] == ["logits"]


def test_verify_accepts_the_file_and_refuses_another(run, exported):
    path = exported[0]
    code, out, _ = run("verify", path, CLASSIFIER, "--json")
    assert code == 0
    assert json.loads(out)["max_absolute_error"] < 1e-4
    code, out, _ = run("verify", path, CLASSIFIER)
    assert code == 0
    assert "agrees with eager PyTorch" in out
    model = onnx.load(path)
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    onnx.save(model, "changed.onnx")
    code, out, err = run("verify", "changed.onnx", CLASSIFIER)
    assert (code, out) == (1, "")
    assert "output 'logits' differs from eager PyTorch" in err


def test_verify_refuses_a_file_of_another_shape(run, exported):
    code, out, err = run("verify", exported[0], "factories.py:fine")
    assert (code, out) == (1, "")
    assert err.endswith("opsetta: input 'image' must have the shape [batch, 3, 16, 16], not [2, 4]\n")


def test_a_narrowed_dimension_is_refused_stated_or_checked(run):
    pathlib.Path("narrowed.py").write_text(
        "import torch\n"
        "def forward(x):\n"
        "    return x.sum(1) if x.shape[1] <= 64 else x.mean(1).double()\n"
        "def make():\n"
        "    return forward, (torch.ones(2, 8),)\n"
    )
    command = ["export", "narrowed.py:make", "-o", "out.onnx", "--dynamic"]
    code, _, err = run(*command, "x:1=time")
    assert code == 1
    assert "time <= 64 (narrowed.py:3: " in err
    assert "--narrow" in err
    assert not pathlib.Path("out.onnx").exists()
    code, _, err = run(*command, "x:1=time<=64")
    assert (code, err) == (0, "")
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["ReduceSum"]
    with pytest.warns(UserWarning, match="the export is valid for time <= 64"):
        code, _, _ = run(*command, "x:1=time", "--narrow", "--guard")
    assert code == 0
    assert "Reshape" in [node.op_type for node in onnx.load("out.onnx").graph.node]


def test_info_in_words_and_json(run, exported):
    path = exported[0]
    code, out, _ = run("info", path)
    assert code == 0
    assert "opsets ai.onnx 12, IR version 7" in out
    assert "[batch, 3, 16, 16]" in out
    code, out, _ = run("info", path, "--json")
    found = json.loads(out)
    assert found["opset_imports"] == {"ai.onnx": 12}
    assert found["inputs"] == [{"name": "image", "type": "FLOAT", "shape": ["batch", 3, 16, 16]}]
    assert found["outputs"] == [{"name": "logits", "type": "FLOAT", "shape": ["batch", 10]}]
    assert sum(found["operators"].values()) == found["nodes"]
    assert found["operators"]["Conv"] == 2
    assert found["initializers"]["bytes"] >= 4 * (8 * 3 * 9 + 16 * 8 * 9)


def test_check_says_what_is_valid_runs_and_is_taken(run, exported):
    assert "the model was not run" in run("check", exported[0])[1]
    code, out, errors = run("check", exported[0], "--run")
    assert (code, errors) == (0, "")
    assert "every node is valid at opset 12\nonnxruntime" in out
    assert re.search(r"targets without known problems: .*onnxruntime", out)
    assert re.search(r"- rknn: input .image. has dynamic dimensions", out)
    model = onnx.load(exported[0])
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    relu.op_type = "Gelu"
    onnx.save(model, "wrong.onnx")
    code, out, _ = run("check", "wrong.onnx", "--json", "--run")
    facts = json.loads(out)
    assert (code, facts["valid"], len(facts["invalid"])) == (1, False, 1)
    assert "Gelu" in facts["runtime_error"]
    checked = opsetta.load("wrong.onnx").check(run=True)
    assert [node.operator for node in checked.invalid] == ["Gelu"]
    assert set(checked.problems) == set(facts["problems"])
    assert (checked.supported_by, facts["supported_by"]) == ((), [])
    text = "\n".join(checked.lines())
    assert text.count(checked.invalid[0].reason) == 1
    assert "targets without known problems: none, because of the nodes that are not valid" in text


def test_check_reads_a_file_once(run, exported, monkeypatch):
    readings = []
    monkeypatch.setattr(
        "opsetta.exporter.load_model.to_ir", lambda *args: (readings.append(args), to_ir(*args))[1]
    )
    assert run("check", exported[0])[0] == 0
    assert len(readings) == 1


def test_check_of_in_place_annotations(run, exported):
    code, out, errors = run("check", exported[0], "--inplace")
    assert (code, errors) == (0, "")
    assert out.endswith("in-place annotations, all safe\n")
    model = onnx.load(exported[0])
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    for node in model.graph.node:
        del node.metadata_props[:]
    relu.metadata_props.add(key="opsetta.may_overwrite", value="0:3")
    onnx.save(model, "unsafe.onnx")
    code, out, errors = run("check", "unsafe.onnx", "--inplace")
    reason = "the node has no input 3"
    assert (code, errors) == (1, "")
    assert out == f"node '{relu.name}': opsetta.may_overwrite = 0:3: {reason}\n"
    code, out, _ = run("check", "unsafe.onnx", "--inplace", "--json")
    assert code == 1
    unsafe = {"node": f"node '{relu.name}'", "annotation": "opsetta.may_overwrite = 0:3", "reason": reason}
    assert json.loads(out) == {"file": "unsafe.onnx", "safe": 0, "unsafe": [unsafe]}
    assert run("check", "none.onnx")[0] == 1


def test_export_with_options(run):
    code, out, _ = run(
        "export", "factories.py:fine", "-o", "m.onnx", "--opset", 9, "--dynamic", "input:0=rows",
        "--output-names", "scores", "--external-data",
    )  # fmt: skip
    assert code == 0
    assert "opset 9" in out
    code, out, _ = run("info", "m.onnx", "--json")
    found = json.loads(out)
    assert found["inputs"][0]["shape"] == ["rows", 4]
    assert found["outputs"][0] == {"name": "scores", "type": "FLOAT", "shape": ["rows", 3]}


def test_what_the_users_code_prints_stays_out_of_json(run):
    code, out, err = run("export", "factories.py:fine", "-o", "m.onnx", "--json")
    assert code == 0
    assert json.loads(out)["file"] == "m.onnx"
    assert "the file talks\nthe factory talks\n" in err


def test_a_file_with_symbolics_is_loaded(tmp_path):
    source = f"{EXAMPLES / 'model_factory.py'}:clipped"
    symbolics = str(EXAMPLES / "custom_symbolic.py")
    arguments = ["export", source, "-o", "k.onnx", "--symbolics", symbolics, "--verify", "--json"]
    report = json.loads(run_program(f"opsetta_command({arguments})", tmp_path))
    assert report["verification"]["max_absolute_error"] < 1e-4


def test_ops_as_table_and_json(run):
    code, out, _ = run("ops", "--filter", "aten::relu")
    assert code == 0
    assert re.search(r"^aten::relu +S +S", out, re.MULTILINE)
    code, out, _ = run("ops", "--opset", 9, "--filter", "ATEN::RELU", "--json")
    found = json.loads(out)
    assert found["opsets"] == [9]
    [relu] = [row for row in found["operators"] if row["name"] == "aten::relu"]
    assert (relu["opset"], relu["support"], relu["serves"], relu["first_opset"]) == (9, "symbolic", 9, 7)


def test_the_operator_page_is_what_the_command_prints(run):
    code, out, _ = run("ops", "--markdown")
    assert code == 0
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert out == page, "run: opsetta ops --markdown > docs/operators.md"


def test_the_operator_page_is_whole(run):
    assert run("ops", "--markdown", "--filter", "relu")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["export", "factories.py", "-o", "out.onnx"],
            "'factories.py' does not name a factory: write PATH.py",
        ),
        (
            ["export", "factories.py:fine", "--input", "x", "-o", "out.onnx"],
            "--input is for TorchScript files",
        ),
        (["sweep", "factories.py", "--opsets", "abc", "-o", "out.sqlite"], "--opsets 'abc': write opsets"),
        (["sweep", "factories.py", "--opsets", "13", "-o", "out.txt"], "the results file must end in"),
    ],
)
def test_wrong_usage_has_its_own_exit_code(run, arguments, message):
    code, _, err = run(*arguments)
    assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "nowhere.py:make"], "there is no file 'nowhere.py'"),
        (["export", "factories.py:nothing"], "'factories.py' has no function 'nothing'"),
        (["export", "factories.py:not_callable"], "'factories.py' has no function 'not_callable'"),
        (["export", "factories.py:raising"], "raised ValueError: first line second line"),
        (["export", "factories.py:leaving"], "raised SystemExit: 3"),
        (["export", "factories.py:number"], "must return (model, args)"),
        (["export", "factories.py:no_model"], "returned a dict without 'model'"),
        (["export", "factories.py:unknown_key"], "unknown keys: opset"),
        (["export", "factories.py:not_a_model"], "returned a int instead of a model"),
        (["export", "broken.py:make"], "'broken.py' raised SyntaxError"),
        (["export", "factories.py:fine", "--symbolics", "nowhere.py"], "there is no file 'nowhere.py'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(run, tmp_path, arguments, message):
    (tmp_path / "broken.py").write_text("def make(:\n")
    code, out, err = run(*arguments, "-o", "out.onnx")
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("opsetta: ")
    assert message in last
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.onnx*"))
    assert not list(tmp_path.glob(".*.onnx*"))


@pytest.mark.parametrize("target", ["nowhere/out.onnx", "."])
def test_an_unwritable_output_is_refused_before_the_model_is_made(run, target):
    code, out, err = run("export", "factories.py:raising", "-o", target)
    assert (code, out) == (1, "")
    assert err.startswith(f"opsetta: '{target}' cannot be written")


def test_operators_that_cannot_be_said_are_all_named_and_no_file_is_written(run, tmp_path):
    code, out, err = run("export", "factories.py:unexportable", "-o", "out.onnx", "--opset", 9)
    assert (code, out) == (1, "")
    assert "linalg_eigvals" in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.onnx*"))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x08", b'{"not": "onnx"}', bytes(range(256))])
@pytest.mark.parametrize("command", ["info", "verify", "check"])
def test_what_is_not_an_onnx_file_is_refused(run, tmp_path, command, content):
    (tmp_path / "bad.onnx").write_bytes(content)
    rest = ["factories.py:fine"] if command == "verify" else []
    code, out, err = run(command, "bad.onnx", *rest)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"opsetta: 'bad.onnx' is not an ONNX file: [^\n]+\n", err)


@pytest.mark.parametrize("command", ["info", "verify", "check"])
def test_a_missing_model_file_is_refused(run, command):
    rest = ["factories.py:fine"] if command == "verify" else []
    code, out, err = run(command, "nowhere.onnx", *rest)
    assert (code, out) == (1, "")
    assert err == "opsetta: 'nowhere.onnx' cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["export"],
        ["export", "factories.py:fine"],
        ["export", "factories.py:fine", "-o", "out.onnx", "--opset", "nine"],
        ["export", "factories.py:fine", "-o", "out.onnx", "--dynamic", "x"],
        ["ops", "--unknown"],
        ["info"],
        ["check"],
    ],
)
def test_wrong_usage_is_exit_code_2(run, arguments):
    code, _, err = run(*arguments)
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [["ops"], ["export", "factories.py:fine", "-o", "out.onnx"], ["convert", "model.onnx", "-o", "out.onnx"]],
)
@pytest.mark.parametrize("opset", ["6", "99", "-1"])
def test_an_impossible_opset_is_wrong_usage(run, arguments, opset):
    code, out, err = run(*arguments, "--opset", opset)
    assert (code, out) == (2, "")
    message = f"opsetta: opset {opset} is not supported: opsetta writes opsets {OPSET_RANGE}"
    newest = onnx.defs.onnx_opset_version()
    lacks = f", and the installed onnx {onnx.__version__} has opsets up to {newest}" if opset == "99" else ""
    assert err == f"{message}{lacks}\n"


def test_control_characters_of_a_file_do_not_reach_the_terminal(run, tmp_path):
    hostile = "\x1b]0;title\x07\x9b31m\r\u202e"
    graph = helper.make_graph(
        [helper.make_node("Relu", [hostile], ["y"], name=hostile), helper.make_node(hostile, ["y"], ["z"])],
        hostile,
        [helper.make_tensor_value_info(hostile, TensorProto.FLOAT, [hostile])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [helper.make_tensor(hostile + "w", TensorProto.FLOAT, [1], [0.0])],
    )
    graph.node[0].metadata_props.add(key="opsetta.may_overwrite", value=hostile)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model.metadata_props.add(key=hostile, value=hostile)
    onnx.save(model, tmp_path / "h.onnx")
    for arguments in (
        ["info", "h.onnx"],
        ["info", "h.onnx", "--json"],
        ["check", "h.onnx"],
        ["check", "h.onnx", "--json"],
        ["convert", "h.onnx", "-o", "out.onnx", "--opset", "9"],
        ["verify", "h.onnx", "factories.py:fine"],
        ["info", f"{hostile}.onnx"],
        ["convert", f"{hostile}.onnx", "-o", f"{hostile}/out.onnx"],
        ["export", f"{hostile}.py:make", "-o", "out.onnx"],
        ["export", "factories.py:fine", "-o", f"{hostile}/out.onnx"],
    ):
        _, out, err = run(*arguments)
        assert not {c for c in out + err if c not in "\n\t│╭╮╰╯─" and not c.isprintable()}, arguments


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("opsetta conv", ["convert"]), ("opsetta export --opt", ["--optimize"]), ("opsetta check mod", [])],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(run, monkeypatch, shell, typed, completed):
    words = typed.split()
    monkeypatch.setenv("_OPSETTA_COMPLETE", f"complete_{shell}")
    # What the scripts of --install-completion set; bash says which word is typed.
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    code, out, _ = run()
    found = re.findall(r"(?:^|\")(--optimize|convert)\b", out, re.MULTILINE)
    assert (code, found) == (0, completed)


def test_the_package_runs_as_a_module():
    arguments = [sys.executable, "-m", "opsetta", "--version"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"opsetta {opsetta.__version__}\n"


def test_the_version_is_printed(run):
    assert run("--version") == (0, f"opsetta {opsetta.__version__}\n", "")


def test_the_help_page_lists_the_commands_with_their_own_summaries():
    # The page is written without the modules of the commands.
    page, every_command = (
        CliRunner().invoke(make_application(arguments), ["--help"]).output for arguments in (["--help"], None)
    )
    assert page == every_command
    assert [command.name for command in make_application(["info", "m.onnx"]).registered_commands] == ["info"]


def test_help_shows_brackets_as_they_are(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("export", "--help")
    assert code == 0
    for text in ("float32[batch,3,224,224]", "int64[batch,seq=7]<100", "[required]", "[default: full]"):
        assert text in out


CONVERSION = ["convert", "m.onnx", "--opset", "9", "-o", "o.onnx"]
LIBRARIES = {"torch", "onnxruntime", "sympy", "onnx_ir", "onnx", "numpy"}


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], LIBRARIES),
        (["--version"], LIBRARIES),
        (["export", "--help"], LIBRARIES),
        (["ops", "--json"], {"torch"}),
        (["info", "m.onnx"], {"torch", "sympy", "rich", "opsetta.exporter.lowering.driver"}),
        (CONVERSION, {"torch", "sympy", "opsetta.symbolics.tensorflow"}),
        (["check", "m.onnx"], {"torch", "sympy"}),
    ],
)
def test_commands_import_only_the_libraries_that_they_need(arguments, absent, tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    code = (
        "import sys\n"
        "from opsetta.exporter.command_line.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit as left:\n"
        "    assert not left.code, left.code\n"
        f"assert not {absent} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_collection_looks_through_what_a_command_imports(tmp_path):
    graph = helper.make_graph([], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)], [])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    code = (
        "import gc, sys\n"
        "counts = []\n"
        "gc.callbacks.append(lambda phase, info: phase == 'start' and counts.append(gc.get_count()[0]))\n"
        "sys.argv = ['opsetta', 'info', 'm.onnx']\n"
        "from opsetta.exporter.command_line.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    assert max(counts) < 10_000, counts\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, check=True)


@pytest.mark.parametrize("cell", ["v1", "[batch, 3]", "名前"])
def test_tables_in_pipes_are_those_of_terminals_without_truncation(monkeypatch, capsys, cell):
    rows = table("", "a long heading")
    row(rows, cell, "1")
    row(rows, "output", "x" * 20)
    show(rows)
    in_pipe = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    show(rows)
    assert capsys.readouterr().out == in_pipe


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_typer_the_message_says_what_to_install(missing):
    code = (
        # A table in a pipe takes no rich.
        f"import sys; sys.modules[{missing!r}] = None; sys.stdout.isatty = lambda: True\n"
        "from opsetta.exporter.command_line.cli import main\nmain(['ops'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"opsetta: the command line needs {missing}: pip install 'opsetta[cli]'\n"


def test_progress_is_silent_when_piped(capsys):
    with progress.stages() as stage:
        stage("capturing")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_factory_may_import_what_stands_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_factory.py").write_text("VALUE = (abs, (1,))\n")
    (tmp_path / "importing.py").write_text("from beside_the_factory import VALUE\ndef make(): return VALUE\n")
    example = factory.load_example(f"{tmp_path / 'importing.py'}:make")
    assert (example.model, example.args, example.kwargs, example.options) == (abs, (1,), {}, {})


def test_a_dict_may_carry_options(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "with_options.py").write_text(
        "def make(): return {'model': abs, 'args': 1, 'kwargs': None, 'output_names': ['y']}\n"
    )
    example = factory.load_example(f"{tmp_path / 'with_options.py'}:make")
    assert (example.args, example.kwargs, example.options) == ((1,), {}, {"output_names": ["y"]})


def test_info_of_what_a_file_may_hold():
    then = helper.make_graph([helper.make_node("Constant", [], ["t"], value_float=1.0)], "then", [],
                             [helper.make_tensor_value_info("t", TensorProto.FLOAT, [])])  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=then),
         helper.make_node("Op", ["y"], ["z"], domain="mylib")],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.INT4, [3]),
         helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.INT4, [3], [1, 2, 3])],
    )  # fmt: skip
    assert list(with_subgraphs(graph)) == [graph, then, then]
    assert summary._tensor_bytes(graph.initializer[0]) == 2
    assert [summary._value(value) for value in (*graph.input, *graph.output)] == [
        {"name": "c", "type": "BOOL", "shape": []},
        {"name": "w", "type": "INT4", "shape": [3]},
        {"name": "s", "type": "sequence", "shape": None},
        {"name": "z", "type": "FLOAT", "shape": None},
    ]


def test_errors_of_the_users_own_keep_their_words(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "refusing.py").write_text(
        "import opsetta\ndef make(): raise opsetta.OpsettaError('no luck')\n"
    )
    with pytest.raises(OpsettaError, match="^no luck$"):
        factory.load_example(f"{tmp_path / 'refusing.py'}:make")

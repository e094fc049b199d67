"""`opsetta targets`, `check --target`, `convert --target`, `export --target` and `compare`."""

import json
import pathlib
import subprocess
import sys

import onnx
import pytest

import opsetta
from opsetta.exporter.command_line.commands.targets import markdown
from opsetta.exporter.devices.targets.load_target import load_target, target_names

ROOT = pathlib.Path(__file__).resolve().parents[3]
CLASSIFIER = f"{ROOT / 'examples' / 'model_factory.py'}:classifier"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    import torch

    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softsign()).eval()
    opsetta.export(model, (torch.ones(1, 4),), opset=20, input_names=["x"]).save(path)
    return path


def test_targets_are_listed(run):
    code, out, _ = run("targets", "--json")
    assert code == 0
    assert [entry["name"] for entry in json.loads(out)["targets"]] == target_names()
    assert "RKNN" in run("targets")[1]


def test_the_documented_table_is_the_printed_one(run):
    table = markdown(map(load_target, target_names()))
    assert run("targets", "--markdown")[1] == table
    assert table in (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "device.toml"
    path.write_text(
        'title = "A device"\nsources = ["its manual, version 2.1"]\nopsets = { maximum = 19 }\n'
        'host_operators = ["Div"]\nmeasured_operators = ["Gemm"]\n'
        'operators = { refused = ["Abs", "Max", "Relu"] }\n'
    )
    return path


def test_check_lists_what_a_target_does_not_take(run, exported, device):
    code, out, _ = run("check", exported, "--target", device, "--json")
    found = json.loads(out)
    assert code == 1
    assert not found["taken"]
    reasons = [problem["reason"] for problem in found["problems"]]
    assert reasons[0] == "opset 20 is not supported, but up to 19; convert to 17"
    assert {(p["operator"], p["module"]) for p in found["problems"][1:]} == {("Abs", "1")}
    assert [(p["operator"], p["module"]) for p in found["host_nodes"]] == [("Div", "1")]
    assert (found["right_nodes"], sorted(found["unmeasured"])) == (1, ["Abs", "Add", "Div"])
    assert found["oldest_version"] == ""
    code, out, _ = run("check", exported, "--target", "onnxruntime")
    assert "supported by onnxruntime from version 1.18 on" in out
    assert run("check", exported, "--target", "onnxruntime@1.16")[0] == 1
    assert code == 0
    assert "no known problems" in out
    assert "every node is valid at opset 20" in run("check", exported)[1]


def test_check_against_a_target_needs_no_torch(exported):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['onnxruntime'] = None\n"
        "from opsetta.exporter.command_line.cli import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "check", str(exported), "--target", "tensorrt"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_forced_file_is_written_with_a_warning(run, exported, device, tmp_path):
    command = ("convert", exported, "-o", "out.onnx", "--target", device)
    assert run(*command)[0] == 1
    assert not (tmp_path / "out.onnx").exists()
    with pytest.warns(UserWarning, match="Abs"):
        code, out, _ = run(*command, "--force")
    assert code == 0
    assert "Abs ('" in out
    assert (tmp_path / "out.onnx").exists()


def test_convert_names_the_versions_that_take_a_file(run, exported):
    code, out, _ = run("convert", exported, "-o", "out.onnx", "--target", "onnxruntime@1.4", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["opset"] == 12
    assert (found["target"]["target"], found["target"]["oldest_version"]) == ("onnxruntime@1.4", "1.4")


def test_convert_writes_for_a_target_or_nothing(run, exported, device, tmp_path):
    code, _, error = run("convert", exported, "-o", "out.onnx", "--target", device)
    assert code == 1
    assert "Abs ('" in error
    assert not (tmp_path / "out.onnx").exists()
    assert run("convert", exported, "-o", "out.onnx", "--target", "onnx2torch")[0] == 0
    assert onnx.load(tmp_path / "out.onnx").opset_import[0].version == 13
    code, _, error = run("convert", exported, "-o", "no.onnx", "--target", "rknn", "--opset", "20")
    assert code == 1
    assert "supports opset up to 19" in error


def test_export_writes_for_a_target_of_ones_own(run, tmp_path):
    (tmp_path / "mine.toml").write_text('title = "Mine"\nsources = ["me"]\n[opsets]\nmaximum = 12\n')
    code, out, error = run("export", CLASSIFIER, "-o", "m.onnx", "--target", "mine.toml", "--json")
    assert code == 0, error
    assert json.loads(out)["opset"] == 12


def test_compare_shows_two_files(run, exported, tmp_path):
    opsetta.load(exported).lower(13).save(tmp_path / "low.onnx")
    code, out, _ = run("compare", exported, "low.onnx", "--runs", "2", "--json")
    found = json.loads(out)
    assert code == 0
    assert [file["opset_imports"]["ai.onnx"] for file in found["files"]] == [20, 13]
    assert set(found["latency_ms"]) == {"all", "none"}
    assert found["outputs"][0]["absolute"] < 1e-5
    assert "Gemm" in found["operators"]
    text = run("compare", exported, "low.onnx", "--runs", "0")[1]
    assert "initializers" in text
    assert run("compare", exported, "low.onnx", "--dim", "b")[0] == 2

"""The table's logic: outcomes of files, causes, and processes that die. No consumer is needed."""

import ast
import json
import pathlib
import sys
import types

import numpy as np
import onnx
import pytest
import torch

from opsetta.exporter.devices.targets.load_target import load_target

from ..parity.records import Record
from . import operator_files, operator_table, releases, report, run, run_files, write
from .consumers import CONSUMERS, HERE
from .models import GROUPS, MODELS, build


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, "not written"),
        ({"difference": 1e-6}, "agrees"),
        ({"difference": 0.2}, "wrong"),
        ({"difference": float("inf")}, "wrong"),
        ({"error": "RuntimeError: no"}, "refused"),
        ({"error": "signal 11: ", "crash": True}, "crashes"),
    ],
)
def test_verdicts(outcome, said):
    assert report.verdict(outcome, 1e-4) == said


def test_differences_are_relative_and_see_nan_and_shapes():
    wanted = np.array([[1.0, -4.0]], np.float32)
    assert run_files.difference(wanted + 0.4, wanted) == pytest.approx(0.1, rel=1e-3)
    assert run_files.difference(np.array([[np.nan, -4.0]]), wanted) == float("inf")
    assert run_files.difference(wanted[0], wanted) == float("inf")


def test_the_worst_output_counts(tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.ones(2, np.float32))
    np.savez(tmp_path / "expected.npz", np.ones(2, np.float32), np.array([[4]]))
    job = {side: str(tmp_path / f"{side}.npz") for side in ("inputs", "expected")}
    job |= {"model": "", "outputs": ["y", "z"]}
    for second, worst in ((4, 0.0), (3, 0.25)):
        adapter = types.SimpleNamespace(run=lambda job, second=second: [job.feed["x"], np.array([[second]])])
        assert run_files.run(adapter, job)["difference"] == worst
    adapter.run = lambda job: [job.feed["x"]]
    assert run_files.run(adapter, job) == {"error": "1 outputs instead of 2"}


def test_reasons_are_one_line_for_a_table():
    said = report.reason("start\nOpenCV(4) /io/dnn/src/x.cpp:1: error: no `a|b`\n > \nin function 'f'")
    assert said == "OpenCV(4) x.cpp:1: error: no 'a\\|b'"
    assert report.reason("[20:03:43] :220: These Op Not Support: IsNaN") == "These Op Not Support: IsNaN"
    assert len(report.reason("error " + "x" * 500)) == report.MAXIMUM_REASON


def test_a_job_without_an_end_is_where_the_process_died():
    lines = [{"began": 3}, {"ended": 3, "difference": 0.0}, {"began": 5}]
    found = run.outcomes_of(lines, "signal 11: ")
    assert found == {3: {"difference": 0.0}, 5: {"error": "signal 11: ", "crash": True}}


_ADAPTER = """
import os
def run(job):
    if "crash" in job.path:
        os.abort()
    if "refuse" in job.path:
        raise ValueError("no")
    return [job.feed["x"] * 2]
"""


def test_files_behind_a_crash_are_run(tmp_path, monkeypatch):
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / f"{CONSUMERS['tract'].adapter}.py").write_text(_ADAPTER)
    (tmp_path / "run_files.py").write_text((HERE / "run_files.py").read_text())
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "interpreter", lambda root, name: pathlib.Path(sys.executable))
    np.savez(tmp_path / "inputs.npz", x=np.ones(2, np.float32))
    np.savez(tmp_path / "expected.npz", np.full(2, 2, np.float32))
    sides = {side: str(tmp_path / f"{side}.npz") for side in ("inputs", "expected")}
    work = {
        (name, "opsetta"): {"model": name, "outputs": ["y"], **sides}
        for name in ("good", "crash", "refuse", "last")
    }
    found = run.run("tract", work, tmp_path)
    said = {name: report.verdict(outcome, 1e-4) for (name, _), outcome in found.items()}
    assert said == {"good": "agrees", "crash": "crashes", "refuse": "refused", "last": "agrees"}


def test_the_pages_are_written_between_their_marks(tmp_path):
    for name in ("index", *report.PAGES):
        (tmp_path / f"{name}.md").write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    outcome = {"ResNet": {"opsetta": {"difference": 0.0}}, "LSTM": {"opsetta": {"error": "error: no LSTM"}}}
    (tmp_path / "results.json").write_text(json.dumps({"tvm": outcome}))
    report.write(tmp_path, tmp_path)
    for name in ("index", "tvm"):
        text = (tmp_path / f"{name}.md").read_text()
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert "\nold\n" not in text
    # A consumer that did not run keeps its table.
    assert "\nold\n" in (tmp_path / "opencv.md").read_text()
    index, page = ((tmp_path / f"{name}.md").read_text() for name in ("index", "tvm"))
    assert "These tables rest on 2 models (0 timm, 0 transformers, 2 own)." in index
    assert "| TVM | 1 of 2 |  |  |  |" in index
    assert "| model | opsetta | target | dynamo | torchscript |" in page
    assert "| ResNet | agrees | not written | not written | not written |" in page
    assert "| **agree, own** | 1 of 2 |  |  |  |" in page
    assert "- opsetta, LSTM: refused: error: no LSTM" in page


def test_the_table_of_operators_counts_forms(tmp_path):
    right, wrong = {"verdict": "agrees"}, {"verdict": "wrong"}
    outcomes = {
        "mnn": {"pooling/max_pool2d-3": right, "pooling/max_pool2d-2_2": wrong, "shape/cat": right},
        "tract": {
            "pooling/max_pool2d-3": right,
            "pooling/max_pool2d-2_2": {"verdict": "refused"},
            "shape/cat": right,
            "linalg/einsum of ones": {"verdict": "not written"},
        },
    }
    page = tmp_path / "operators.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    (tmp_path / "operators.json").write_text(json.dumps(outcomes))
    operator_table.write(tmp_path, page)
    text = page.read_text()
    assert "rests on 4 forms of 3 operators" in text
    assert "| MNN | 2 | 1 | 0 | 0 | 0 |" in text
    assert "| tract | 2 | 0 | 1 | 0 | 1 |" in text
    assert "| pooling: max_pool2d | 1 of 2, 1 wrong | 1 of 2, 1 refused |" in text
    assert "| linalg: einsum |  | 0 of 1, 1 not written |" in text
    assert "All forms of these 1 agree in each consumer: shape: cat." in text
    assert "- MNN: pooling/max_pool2d-2_2" in text
    assert text.startswith("before\n")
    assert "\nold\n" not in text


def test_a_record_is_captured_once_for_all_targets(tmp_path):
    pair = Record("pair", lambda x: (x.relu(), x.exp()), (torch.ones(1, 2, 3, 3),))
    jobs = operator_files.write("shape/pair", pair, ["opencv4", "mnn"], tmp_path)
    assert sorted(jobs) == ["mnn", "opencv4"]
    for job in jobs.values():
        assert [value.name for value in onnx.load(job["model"]).graph.output] == job["outputs"]
        assert [value.shape for value in np.load(job["expected"]).values()] == [(1, 2, 3, 3)] * 2
    integers = Record("integers", lambda x: x.long(), pair.inputs)
    assert operator_files.write("shape/integers", integers, ["mnn"], tmp_path) == {}
    determinant = Record("determinant", torch.linalg.det, (torch.eye(3)[None],))
    assert "Loop" in operator_files.write("linalg/det", determinant, ["opencv4"], tmp_path)["opencv4"]


def test_every_consumer_has_a_page():
    assert sorted(name for names in report.PAGES.values() for name in names) == sorted(CONSUMERS)
    for page in ("index", *report.PAGES):
        assert report.BEGIN in (report.FOLDER / f"{page}.md").read_text(encoding="utf-8")


def test_every_consumer_has_an_adapter():
    for consumer in CONSUMERS.values():
        assert "def run(job)" in (HERE / "adapters" / f"{consumer.adapter}.py").read_text()


@pytest.mark.parametrize(
    "path", [HERE / "run_files.py", *(HERE / "adapters").glob("*.py")], ids=lambda path: path.stem
)
def test_what_runs_beside_old_releases_suits_python_3_7(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))
    imports = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imports[:1] == ["__future__"]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not any(keyword.arg == "strict" for call in calls for keyword in call.keywords)


def test_a_target_has_its_own_files_and_its_refusals_are_outcomes(tmp_path):
    path = write.path_of(tmp_path, "YOLO head", "target", "opencv4")
    assert path.name == "yolo_head-target-opencv.onnx"
    assert write.path_of(tmp_path, "YOLO head", "opsetta", "mnn").name == "yolo_head-opsetta.onnx"
    path.with_suffix(".refused").write_text("TargetError: no", encoding="utf-8")
    assert run.refusals(tmp_path, ["YOLO head"], "mnn") == {}
    assert run.refusals(tmp_path, ["YOLO head"], "opencv4") == {
        ("YOLO head", "target"): {"error": "TargetError: no"}
    }


def test_a_model_is_captured_once_for_all_targets(tmp_path):
    assert write.write("DLRM", tmp_path, ["opsetta", "target"], ["opencv4", "onnxslim"]) == []
    files = sorted(path.name for path in tmp_path.glob("*.onnx"))
    assert files == ["dlrm-opsetta.onnx", "dlrm-target-opencv.onnx"]


def test_groups_are_the_list_of_models():
    names = [name for models in GROUPS.values() for name in models]
    assert sorted(names) == sorted(MODELS)
    assert len(GROUPS["timm"]) + len(GROUPS["transformers"]) >= 60


@pytest.mark.parametrize("name", ["LSTM", "YOLO head", "DeepLabV3"])
def test_models_are_the_same_each_time(name):
    model, inputs = build(name)
    again, others = build(name)
    assert all(bool((inputs[key] == others[key]).all()) for key in inputs)
    assert bool((model(*inputs.values()) == again(*others.values())).all())


def test_releases_are_versions_of_targets_with_facts():
    for target, release in releases.RELEASES.items():
        loaded = load_target(target)
        assert loaded.name == release.target
        assert loaded.version
        assert all(opset is None or opset in loaded.opsets for opset in release.opsets)
        assert (HERE / "adapters" / f"{releases.consumer(release).adapter}.py").exists()


def test_the_page_of_releases_counts_files(tmp_path):
    page = tmp_path / "releases.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    outcomes = {
        "opencv@4.8-own": {
            "ResNet": {"difference": 0.0},
            "LSTM": {"error": "TargetError: target 'opencv@4.8' does not support one thing"},
            "ViT": {"difference": 0.5},
            "Swin": {"error": "signal 11: ", "crash": True},
        }
    }
    releases.write_page(outcomes, page)
    text = page.read_text()
    assert "| `opencv@4.8` | its own | 1 | 1 | 1 | 1 |" in text
    assert "- opencv@4.8, opset its own, ViT: wrong: other numbers" in text
    assert "old" not in text
    assert text.endswith("after\n")

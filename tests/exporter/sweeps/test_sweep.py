"""Sweeps of small zoos: rows, statuses, what is repeated, and what is refused before the first job."""

import os
import pathlib
import shutil

import pytest

import opsetta
from opsetta.exporter.sweeps.results.result_files import read_rows
from opsetta.exporter.sweeps.rows import DIED, FAILED, PASSED, REFUSED, WRITTEN
from opsetta.registration import OpsetError, OpsettaError, UsageError

from .conftest import save

ZOO = """
from beside import scale

def raising():
    raise ValueError("no weights")

def crashing():
    __import__("os").abort()

def _not_a_model():
    raise AssertionError

def needs_arguments(x):
    raise AssertionError
"""


@pytest.fixture
def copied(models, tmp_path):
    return shutil.copytree(models, tmp_path / "zoo")


def statuses(results):
    return {(row.model, row.opset, row.shape, row.dtype): row.status for row in results.rows}


def test_factories_that_fail_are_rows(engine, tmp_path):
    zoo = tmp_path / "zoo.py"
    zoo.write_text(ZOO)
    (tmp_path / "beside.py").write_text("scale = 2\n")
    failed, died = opsetta.sweep(zoo, opsets=[7]).rows
    assert (failed.model, failed.status, failed.attempts) == ("raising", FAILED, 1)
    assert failed.error.endswith("raised ValueError: no weights")
    assert (died.model, died.status, died.attempts) == ("crashing", DIED, 2)
    assert died.error.partition("\n")[0] == "the process ended by signal 6 (Aborted)"


def test_files_are_compared_with_the_original(engine, models):
    results = opsetta.sweep(models, opsets=[7, 20], shapes=["batch=5"], targets=["none", "rknn"])
    rows = {row.key: row for row in results.rows}
    assert len(rows) == 12
    gelu = rows["activation/gelu.onnx", 7, "batch=5", "own", "none"]
    assert (gelu.status, gelu.composed_operators, gelu.capture_seconds) == (PASSED, "Gelu", None)
    assert gelu.nodes > rows["activation/gelu.onnx", 20, "batch=5", "own", "none"].nodes == 1
    assert rows["broken.onnx", 7, "batch=5", "own", "none"].error_class == "ModelFileError"
    refused = rows["relu.onnx", 7, "batch=5", "own", "rknn"]
    assert (refused.status, refused.error_class) == (REFUSED, "TargetError")
    assert [row.status for row in results.failures] == [REFUSED] * len(results.failures)


def test_what_is_done_is_not_repeated(engine, copied, tmp_path):
    def run(**options):
        return opsetta.sweep(copied, opsets=[13], output=tmp_path / "r.sqlite", **options)

    assert run().executed == 3
    assert run().executed == 0
    assert run(again=["refused"]).executed == 1
    save(copied / "relu.onnx", "Sigmoid")
    changed = run()
    assert changed.executed == 1
    assert statuses(changed)["relu.onnx", 13, "own", "own"] == PASSED
    quick = run(verify=False, runs=0, only="relu")
    assert [(row.status, row.parity_error, row.latency_ms) for row in quick.rows] == [(WRITTEN, None, None)]
    assert quick.executed == 1
    assert len(read_rows(tmp_path / "r.sqlite")) == 3


def test_a_new_version_repeats_all(engine, models, tmp_path, monkeypatch):
    options = {"opsets": [13], "output": tmp_path / "r.sqlite", "only": "relu"}
    assert opsetta.sweep(models, **options).executed == 1
    monkeypatch.setattr("opsetta.exporter.sweeps.jobs.fingerprints.package_digest", lambda: "another")
    assert opsetta.sweep(models, **options).executed == 1


def test_an_interrupted_sweep_goes_on(engine, models, tmp_path):
    output = tmp_path / "r.parquet"

    def interrupt(row, count, total):
        assert total == 3
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opsetta.sweep(models, output=output, progress=interrupt)
    kept = read_rows(output)
    assert len(kept) == 2
    seen = []
    results = opsetta.sweep(models, output=output, progress=lambda row, *counts: seen.append(counts))
    assert (results.executed, seen) == (1, [(3, 3)])
    assert set(read_rows(output)) == set(results.rows) > set(kept)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"opsets": [6]}, OpsetError, "opset 6 is not supported"),
        ({"opsets": []}, UsageError, "opsets must be a list"),
        ({"dtypes": ["float8"]}, UsageError, "'float8' is not an element type for sweeps"),
        ({"dtypes": ["float16"]}, UsageError, "element type of ONNX files cannot be changed"),
        ({"shapes": ["static"]}, UsageError, "dynamic dimensions of ONNX files cannot be changed"),
        ({"shapes": ["batch"]}, UsageError, "'batch' is not a shape"),
        ({"shapes": ["height=2"]}, UsageError, r"no file has a dimension 'height' \(named: batch\)"),
        ({"targets": ["toaster"]}, UsageError, "there is no target 'toaster'"),
        ({"engine": "slurm"}, UsageError, "the engine must be local, ray"),
        ({"engine": "ray://127.0.0.1:1"}, OpsettaError, "no Ray cluster"),
        ({"workers": 0}, UsageError, "workers must be 1 or more"),
        ({"seconds": 0}, UsageError, "seconds must be more than 0"),
        ({"memory": 0}, UsageError, "memory must be a number of bytes"),
        ({"runs": -1}, UsageError, "runs must be 0 or more"),
        ({"again": ["tired"]}, UsageError, "'tired' is not a status"),
        ({"only": "("}, UsageError, "not a regular expression"),
        ({"only": "nothing"}, OpsettaError, "no model of .* matches 'nothing'"),
        ({"optimize": "extreme"}, UsageError, "optimize"),
        ({"output": "results.txt"}, OpsettaError, "end in one of"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_the_first_job(models, options, kind, message, tmp_path):
    given = {"output": tmp_path / "r.sqlite", **options}
    with pytest.raises(kind, match=message):
        opsetta.sweep(models, **given)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = ", ".* raised SyntaxError"),
        ("import not_installed", "No module named 'not_installed'"),
        ("def helper(x): pass", "has no models"),
        ("MODELS = {}", "must be a dict from names to factories"),
        ("MODELS = {'a': 3}", r"MODELS\['a'\] in .* is not a factory"),
        ("__import__('os').abort()", "the process ended by signal 6"),
    ],
)
def test_a_file_without_models_is_refused(engine, tmp_path, monkeypatch, content, message):
    # These files need no torch.
    monkeypatch.setattr("opsetta.exporter.sweeps.jobs.python_models.IMPORTS", ())
    zoo = tmp_path / "zoo.py"
    zoo.write_text(content)
    with pytest.raises(OpsettaError, match=message):
        opsetta.sweep(zoo)


def test_a_place_without_models_is_refused(tmp_path):
    with pytest.raises(OpsettaError, match=r"has no \.onnx file"):
        opsetta.sweep(tmp_path)
    with pytest.raises(OpsettaError, match="there is no file or folder"):
        opsetta.sweep(tmp_path / "zoo.py")
    (tmp_path / "zoo.txt").write_text("")
    with pytest.raises(OpsettaError, match="is not a zoo"):
        opsetta.sweep(tmp_path / "zoo.txt")


def test_a_limit_of_memory_needs_linux(models, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "exists", lambda self: False)
    with pytest.raises(OpsettaError, match="Linux only"):
        opsetta.sweep(models, memory=10**9)

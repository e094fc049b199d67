"""A model and its weights appear together: whenever a save is killed, and while others save and load."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import opsetta

from .killed_saves import SCENARIOS
from .pairs import listing, number_at, numbers_of

HERE = pathlib.Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


QUICK = ("inline over a pair", "a pair over a pair")


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.sweep]) for name in SCENARIOS]
)
def test_a_killed_save_leaves_the_old_model_or_the_new_one(tmp_path: pathlib.Path, scenario: str) -> None:
    """At each call of the system. The next save leaves nothing of it behind, which the script asserts."""
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_saves.py"), str(tmp_path / "killed"), scenario],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    old = None if SCENARIOS[scenario][0] is None else 1
    first_new = found.index(2)
    assert found == [old] * first_new + [2] * (len(found) - first_new)
    assert first_new > 20
    assert len(found) > first_new + 5


def writers(path: pathlib.Path, seconds: float, *turns: tuple[int, int]) -> list[subprocess.Popen]:
    script = [sys.executable, str(HERE / "alternating_writer.py"), str(path), str(seconds)]
    started = [
        subprocess.Popen([*script, *map(str, turn)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        for turn in turns
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return started


def numbers_in_onnx(path: pathlib.Path) -> set[float]:
    return numbers_of(onnx.load(path))


def numbers_in_onnxruntime(path: pathlib.Path) -> set[float]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    [sums] = session.run(None, {"x": np.zeros(1, np.float32)})
    named = int(session.get_modelmeta().graph_name.removeprefix("graph of "))
    return {named, *(float(total) / 3 for total in np.unique(sums))}


def numbers_in_opsetta(path: pathlib.Path) -> set[float]:
    return numbers_of(opsetta.load(path).model_proto)


@pytest.mark.parametrize(
    "read",
    [numbers_in_onnxruntime, pytest.param(numbers_in_onnx, marks=pytest.mark.sweep), numbers_in_opsetta],
)
def test_a_reader_gets_one_whole_model_while_two_processes_save(tmp_path: pathlib.Path, read, sweep) -> None:
    """Or an error, where the weights are gone: never the graph of one model with the weights of another."""
    path = tmp_path / "model.onnx"
    started = writers(path, 2.0 if sweep else 1.0, (1, 2), (2, 3))
    loaded: list[set[float]] = []
    errors: list[str] = []
    while any(process.poll() is None for process in started):
        try:
            loaded.append(read(path))
        except Exception as error:
            errors.append(str(error))
    assert all(process.returncode == 0 for process in started)
    assert len(loaded) > 3
    assert [numbers for numbers in loaded if len(numbers) != 1] == []
    # `opsetta.load` looks again, and the others say in their own words that the weights are gone.
    assert errors == [] or read is not numbers_in_opsetta
    assert len(errors) < len(loaded)
    assert number_at(path) in (1, 2, 3)
    assert listing(tmp_path) == ["model.onnx", "model.onnx.DIGEST.data"]


def test_the_graph_is_in_front_of_the_opsets_of_a_file(tmp_path: pathlib.Path) -> None:
    """OpenVINO refuses a file whose first fields are two entries for opsets."""
    text = "g (float[n] x) => (float[n] y) { y = Add(x, large) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13, "other": 1]> {text}')
    large = np.ones(5000, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(large, "large"))
    onnx.save(model, tmp_path / "model.onnx")
    opsetta.load(tmp_path / "model.onnx").lower(13).save(tmp_path / "written.onnx")
    version_and_tag = (tmp_path / "written.onnx").read_bytes()[:3]
    assert version_and_tag == b"\x08\x08" + bytes([7 << 3 | 2])
    written = onnx.load(tmp_path / "written.onnx")
    assert [entry.domain for entry in written.opset_import] == ["", "other"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(written.graph.initializer[0]), large)

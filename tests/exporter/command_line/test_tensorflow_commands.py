"""The commands `freeze` and `weights`."""

import json
import pathlib

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import helper, numpy_helper
from safetensors import numpy as safetensors

from opsetta.exporter.capture.tensorflow.freezing import freeze
from opsetta.exporter.capture.tensorflow.messages import message_type

DATA = pathlib.Path(__file__).parents[2] / "data" / "tensorflow"
ADAM = DATA / "freezing" / "adam"


@pytest.mark.parametrize("suffix", ["pb", "pbtxt"])
def test_freeze_writes_the_form_of_the_suffix(run, suffix, tmp_path):
    target = tmp_path / f"frozen.{suffix}"
    arguments = (
        "freeze",
        ADAM / "graph.pb",
        "--checkpoint",
        ADAM / "model.ckpt-5",
        "--outputs",
        "prob",
        "-o",
        target,
    )
    code, out, _ = run(*arguments)
    assert code == 0
    assert "31 nodes, 8 variables as constants" in out
    found = message_type("GraphDef")()
    if suffix == "pb":
        found.ParseFromString(target.read_bytes())
    else:
        text_format.Parse(target.read_text(), found)
    assert found == freeze(ADAM / "graph.pb", ADAM, "prob")


def test_freeze_says_what_it_did_as_json(run, tmp_path):
    target = tmp_path / "f.pb"
    graph = DATA / "freezing" / "training"
    options = ("--set", "net/training=true", "--set", "net/keep_prob=0.5", "--inputs", "net/x", "--json")
    code, out, _ = run(
        "freeze", graph / "graph.pb", "--checkpoint", graph, "--outputs", "net/logits", "-o", target, *options
    )
    assert code == 1  # The folder has no file `checkpoint`.
    code, out, _ = run(
        *("freeze", graph / "graph.pb", "--checkpoint", graph / "model.ckpt"),
        *("--outputs", "net/logits", "-o", target, *options),
    )
    assert code == 0
    found = json.loads(out)
    assert found["outputs"] == ["net/logits"]
    assert found["bytes"] == target.stat().st_size
    frozen = message_type("GraphDef").FromString(target.read_bytes())
    assert "RandomUniform" in {node.op for node in frozen.node}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--outputs", "none"], "outputs names 'none'"),
        ([], "name its outputs"),
        (["--outputs", "prob", "--set", "x"], "'x' is not of the form NAME=VALUE"),
        (["--outputs", "prob", "--set", "keep_prob=a"], "must be a number, true or false, not 'a'"),
        (["--outputs", "prob", "--key", "conv/w=none"], "no variable 'none'"),
        (["--outputs", "prob", "--checkpoint", "/none/x"], "cannot be read"),
    ],
)
def test_freeze_writes_nothing_after_an_error(run, options, reason, tmp_path):
    target = tmp_path / "frozen.pb"
    code, out, err = run("freeze", ADAM / "graph.pb", "--checkpoint", ADAM, *options, "-o", target)
    assert code in (1, 2)
    assert out == ""
    assert reason in err
    assert list(tmp_path.iterdir()) == []


def test_weights_are_listed(run):
    code, out, _ = run("weights", ADAM / "graph.pb", "--checkpoint", ADAM, "--outputs", "prob")
    assert code == 0
    [line] = [line for line in out.splitlines() if line.startswith("conv/w ")]
    assert line.split() == ["conv/w", "float32", *"[3, 3, 2, 4] [h, w, in, out]".split(), "Conv2D"]
    assert "8 weights, 1.2 kB" in out


def test_weights_are_written(run, tmp_path):
    source = ("weights", ADAM / "graph.pb", "--checkpoint", ADAM)
    variables = np.load(ADAM / "vars.npz")
    code, out, _ = run(*source, "-o", tmp_path / "w.npz", "--json")
    assert code == 0
    listed = {entry["name"]: entry for entry in json.loads(out)["weights"]}
    written = np.load(tmp_path / "w.npz")
    assert set(written.files) == set(listed) == set(variables.files)
    for name in variables.files:
        assert (written[name] == variables[name]).all()
    assert run(*source, "--outputs", "prob", "--onnx-order", "-o", tmp_path / "w.safetensors")[0] == 0
    moved = safetensors.load_file(tmp_path / "w.safetensors")
    assert (moved["conv/w"] == variables["conv/w"].transpose(3, 2, 0, 1)).all()


def test_weights_of_a_checkpoint_and_of_onnx(run, tmp_path):
    code, out, _ = run("weights", DATA / "checkpoints" / "v1.ckpt")
    assert (code, "2 weights" in out) == (0, True)
    code, out, _ = run("weights", DATA / "checkpoints" / "str", "-o", tmp_path / "w.npz")
    assert "left out, because they are not numbers: s" in out
    assert np.load(tmp_path / "w.npz").files == ["t"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    code, out, _ = run("weights", tmp_path / "m.onnx", "--json", "-o", tmp_path / "w.safetensors")
    assert code == 0
    assert safetensors.load_file(tmp_path / "w.safetensors")["w"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["weights", ADAM / "graph.pb", "-o", "w.npz"], "pass --checkpoint"),
        (["weights", ADAM / "graph.pb", "-o", "w.txt"], "to a .safetensors or .npz"),
        (["weights", DATA / "checkpoints" / "obj", "--outputs", "x"], "not a TensorFlow graph"),
        (["weights", "nothing"], "cannot be read"),
    ],
)
def test_weights_that_cannot_be_given(run, arguments, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments)
    assert code == (2 if ".npz" in reason else 1)
    assert reason in err
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage_exits_with_2_and_says_what_is_wrong(run):
    for arguments, message in (
        (("ops", "--filter", "zzz"), "no operator has 'zzz' in its name"),
        (("convert", "m.onnx", "--target", "zzz"), "there is no target 'zzz'"),
        (("convert", "m.onnx", "--preprocess", "blur"), "--preprocess: 'blur'"),
        (("convert", "m.onnx", "--postprocess", "nms iou=x"), "--postprocess: 'iou=x'"),
        (("sweep", "missing.py", "--targets", "zzz"), "there is no target 'zzz'"),
        (("sweep", "missing.py", "--dtypes", "int3"), "'int3' is not an element type"),
    ):
        code, _, err = run(*arguments)
        assert code == 2, arguments
        assert message in err

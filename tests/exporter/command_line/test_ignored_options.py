"""Options that a call cannot use, and files of the wrong format: each is refused, and nothing is written."""

import os

import numpy as np
import onnx
import onnx.parser
import pytest

_MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 3, 8, 8] images) => (float[batch, 3, 8, 8] scores) { scores = Relu (images) }"""


@pytest.fixture
def files(tmp_path, run):
    onnx.save(onnx.parser.parse_model(_MODEL), tmp_path / "model.onnx")
    (tmp_path / "plain").write_text("no arrays")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "data.npz", images=np.zeros((4, 3, 8, 8), np.float32))
    (tmp_path / "factory.py").write_text("def make():\n    raise AssertionError\n")
    return {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("convert model.onnx --outputs scores", "not a TensorFlow graph, and outputs can be set for those"),
        ("convert model.onnx --tag serve --keep-parse-example", "and tags, keep-parse-example can be set"),
        ("convert model.onnx --dynamic batch --dim batch=1", "dynamic and dims both set 'batch'"),
        ("convert model.onnx --preprocess 0..0", "the end of their range, which cannot be 0"),
        ("convert model.onnx --preprocess resize=8x", "'resize=8x' is not a type"),
        ("convert model.onnx --preprocess resize=0", "cannot be resized to [0, 0]"),
        ("export factory.py:make -o out.onnx --rtol 0.1", "the tolerances of --verify"),
        ("export factory.py:make -o out.onnx --verify --atol -1", "greater than or equal to 0"),
        ("report model.onnx -o out.html --dynamic images:0=batch", "--dynamic, --input-names"),
        ("check model.onnx --inplace --run", "--target, --inplace and --run are separate checks"),
        ("targets --markdown --json", "--markdown and --json exclude each other"),
        ("realize model.onnx -o model.onnx --pass unroll", "'model.onnx' is the model itself"),
        ("quantize model.onnx --calibrate empty", "'empty' has no .npy, .npz or image files"),
        ("quantize model.onnx --calibrate plain", "'plain' is not a .npy or .npz file of arrays"),
        ("quantize model.onnx --calibrate data.npz --mean 0.5", "mean and std normalize image files"),
        ("quantize model.onnx --calibrate data.npz --loss error", "pass max_loss, too"),
        ("stream model.onnx -o out --lookahead -1", "greater than or equal to 0"),
        ("plan model.onnx -o out --dim rows=1", "no dimension 'rows'; the inputs have batch"),
        ("compare model.onnx model.onnx --layers --runs 2", "--layers compares the results of one random"),
        ("info model.onnx --dim rows=1", "no dynamic dimension 'rows': their dynamic dimensions are batch"),
    ],
)
def test_wrong_usage_names_the_option(run, files, tmp_path, command, message):
    code, out, err = run(*command.split())
    assert (code, out) == (2, "")
    assert message in err
    assert {path.name for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("output", ["plain", "plain/out"])
@pytest.mark.parametrize("command", ["plan", "build", "prepack", "stream"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_model_is_read(
    run, files, tmp_path, command, output
):
    code, out, err = run(command, "missing.onnx", "-o", output)
    assert (code, out) == (1, "")
    assert f"'{output}' cannot be written:" in err
    assert "is a file, and the output is a folder" in err
    assert {path.name for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize(
    "command",
    [
        *("convert", "edit --drop-output scores", "extract", "simplify", "quantize --calibrate data.npz"),
        *("plan", "build", "prepack", "stream", "realize --pass unroll", "report", "plan-tflite", "freeze"),
        "reduce --keep-failing false",
    ],
)
def test_a_protected_folder_is_refused_before_the_model_is_read(run, files, command, monkeypatch):
    # An administrator, whom tests may run as, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    name, *options = command.split()
    code, out, err = run(name, "missing.onnx", *options, "-o", "out")
    assert (code, out) == (1, "")
    assert "'out' cannot be written" in err
    assert "is write-protected" in err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "build model.onnx -o out",
            "sizes of all dimensions, but the model has batch: set them",
        ),
        ("plan model.onnx -o plain", "'plain' cannot be written: it is a file, and the output is a folder"),
        ("convert model.onnx --postprocess nms", "the model has outputs scores[batch,3,8,8]"),
    ],
)
def test_errors_say_what_to_do(run, files, tmp_path, command, message):
    code, out, err = run(*command.split())
    assert (code, out) == (1, "")
    assert message in err
    assert {path.name for path in tmp_path.iterdir()} == files

"""Whole graphs of TensorFlow against its own results: the models of `graphs`, the loops of `control_flow`."""

import functools
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from google.protobuf import text_format

import opsetta
from opsetta.exporter.capture.tensorflow.messages import message_type

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow"
MODELS = ["mlp", "cnn", "lstm", "lstm_lowered", "transformer"]
OPSETS = [9, 11, 13, 15, 18, 21, 24]
FLOWS = sorted(path.stem for path in (DATA / "control_flow").glob("*.pb"))


@functools.cache
def model(path: pathlib.Path, *outputs: str) -> opsetta.SourceModel:
    return opsetta.load(path, outputs=outputs or None)


def checked(source: opsetta.SourceModel, opset: int) -> opsetta.Program:
    """The program at an opset; it declares that opset and has ONNX operators only."""
    program = source.lower(opset)
    proto = program.model_proto
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", opset)]
    assert {node.domain for node in program.model.graph.all_nodes()} == {""}
    return program


def arrays(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The inputs of a model, and what TensorFlow returns, by name."""
    with np.load(DATA / "graphs" / f"{name}.npz") as file:
        found = {key: file[key] for key in file}
    named = (
        {key[len(kind) :].removesuffix(":0"): found[key] for key in found if key.startswith(kind)}
        for kind in ("in:", "out:")
    )
    inputs, outputs = named
    return inputs, outputs


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_tensorflow(name, opset):
    program = checked(model(DATA / "graphs" / f"{name}.pb"), opset)
    inputs, outputs = arrays(name)
    assert (program.input_names, program.output_names) == (list(inputs), list(outputs))
    np.testing.assert_allclose(program(**inputs), *outputs.values(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_text_and_binary_are_the_same_model(name, tmp_path):
    binary, text = (model(DATA / "graphs" / f"{name}{suffix}") for suffix in (".pb", ".pbtxt"))
    assert binary.difference(text) is None
    message = message_type("GraphDef").FromString((DATA / "graphs" / f"{name}.pb").read_bytes())
    written = tmp_path / "no_suffix"
    written.write_text(text_format.MessageToString(message))
    assert binary.difference(opsetta.load(written)) is None


@pytest.mark.parametrize("opset", [7, 11, 24])
@pytest.mark.parametrize("name", FLOWS)
def test_loops_and_branches_agree_with_tensorflow(name, opset):
    with np.load(DATA / "control_flow" / f"{name}.npz") as file:
        found = {key: file[key] for key in file}
    outputs = sorted({key.partition(":")[0] for key in found if key.startswith("out_")})
    program = checked(model(DATA / "control_flow" / f"{name}.pb", *outputs), opset)
    for number in (0, 1):
        results = program(found[f"in_{number}"])
        for output, result in zip(outputs, results if isinstance(results, tuple) else [results], strict=True):
            expected = found[f"{output}:{number}"]
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


SCRIPT = """
import sys
import numpy as np
import opsetta
program = opsetta.load({path!r}).lower(13)
program.save({target!r})
program(np.load({arrays!r})["in:x:0"])
print(sorted(name for name in ("torch", "tensorflow") if name in sys.modules))
"""


def test_neither_torch_nor_tensorflow_is_imported(tmp_path):
    path, example = str(DATA / "graphs" / "cnn.pb"), str(DATA / "graphs" / "cnn.npz")
    script = SCRIPT.format(path=path, arrays=example, target=str(tmp_path / "cnn.onnx"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    onnx.checker.check_model(str(tmp_path / "cnn.onnx"), full_check=True)


@pytest.mark.parametrize("form", ["binary", "json", "text"])
@pytest.mark.parametrize("name", ["cnn", "lstm_lowered"])
def test_the_source_graph_is_saved_and_loaded(name, form, tmp_path):
    source = model(DATA / "graphs" / f"{name}.pb")
    source.save_source(tmp_path / "model", format=form)
    again = opsetta.load(tmp_path / "model")
    assert source.difference(again) is None
    inputs, outputs = arrays(name)
    np.testing.assert_allclose(again.lower(13)(**inputs), *outputs.values(), rtol=1e-5, atol=1e-6)


def test_a_source_file_without_weights_takes_them_again(tmp_path):
    source = model(DATA / "graphs" / "mlp.pb")
    source.save_source(tmp_path / "model", weights="none")
    weights = {v.name: v.const_value.numpy() for v in source.source.graph.initializers.values()}
    again = opsetta.load(tmp_path / "model", weights=weights)
    assert source.difference(again) is None


def test_calls_take_arrays_in_order_or_by_name_and_refuse_others():
    program = model(DATA / "graphs" / "mlp.pb").lower(13)
    [(name, x)] = arrays("mlp")[0].items()
    np.testing.assert_array_equal(program(x), program(**{name: x}))
    assert isinstance(program(x), np.ndarray)
    with pytest.raises(opsetta.OpsettaError, match="'x' is missing"):
        program()
    with pytest.raises(opsetta.OpsettaError, match="there is no input 'y'"):
        program(x, y=x)


def test_there_is_no_pytorch_model_to_compare_with():
    program = model(DATA / "graphs" / "mlp.pb").lower(13)
    for method in (program.verify, program.locate_mismatch):
        with pytest.raises(opsetta.OpsettaError, match="no PyTorch model to compare with"):
            method()

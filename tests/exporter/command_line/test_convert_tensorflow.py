"""`opsetta convert` and `load` of TensorFlow files: form, inputs, outputs, signatures, layouts."""

import json
import pathlib
import shutil

import numpy as np
import onnx
import pytest

import opsetta
from opsetta.exporter.command_line.cli import main

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "tensorflow"
CNN = DATA / "graphs" / "cnn.pb"


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    code = exit.value.code
    text = code if isinstance(code, str) else ""
    captured = capsys.readouterr()
    return (1 if text else int(code or 0)), captured.out, captured.err + text


def converted(capsys, tmp_path, *arguments: object) -> onnx.ModelProto:
    target = tmp_path / "out.onnx"
    code, out, err = run(capsys, "convert", *arguments, "-o", target, "--json")
    assert code == 0, err
    assert json.loads(out)["file"] == str(target)
    model = onnx.load(target)
    onnx.checker.check_model(model, full_check=True)
    return model


def shapes(values) -> dict[str, list]:
    return {v.name: [d.dim_value or None for d in v.type.tensor_type.shape.dim] for v in values}


def test_a_graph_is_converted_at_the_opset(capsys, tmp_path):
    model = converted(capsys, tmp_path, CNN, "--opset", 12)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 12)]
    assert shapes(model.graph.input) == {"x": [None, 32, 32, 3]}
    assert shapes(model.graph.output) == {"Identity": [None, 10]}


def test_inputs_outputs_and_shapes_are_chosen(capsys, tmp_path):
    model = converted(
        capsys,
        tmp_path,
        CNN,
        "--inputs",
        "x:0[2, 32,32,3]",
        "--outputs",
        "sequential_1_1/re_lu_1/Relu:0",
        "--opset",
        9,
    )
    assert shapes(model.graph.input) == {"x": [2, 32, 32, 3]}
    assert shapes(model.graph.output) == {"sequential_1_1/re_lu_1/Relu": [2, 16, 16, 8]}


@pytest.mark.parametrize("form", ["auto", "binary"])
def test_the_form_may_be_stated(capsys, tmp_path, form):
    converted(capsys, tmp_path, CNN, "--input-format", form)


def test_another_form_is_refused(capsys, tmp_path):
    code, _, err = run(capsys, "convert", CNN, "-o", tmp_path / "out.onnx", "--input-format", "text")
    assert code == 1
    assert "is a binary GraphDef, not a text GraphDef" in err
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input-format", "json"], "--input-format must be auto, binary or text"),
        (["--inputs", "x[1,a]"], "the shape [1,a] of 'x' must be a list of sizes"),
        (["--inputs", "x[-2]"], "the shape [-2] of 'x' must be a list of sizes"),
        (["--inputs", "x[1"], "is not a list of names"),
        (["--inputs", "x,x"], "'x' occurs twice"),
        (["--inputs", "y"], "inputs: the graph has no node 'y'"),
        (["--outputs", "logit"], "outputs: the graph has no node 'logit'"),
        (["--tag", "serve"], "is a GraphDef, which has neither tags nor signatures"),
    ],
)
def test_wrong_options_are_named(capsys, tmp_path, arguments, message):
    code, _, err = run(capsys, "convert", CNN, "-o", tmp_path / "out.onnx", *arguments)
    # 2 is wrong usage; whether the graph has a node is seen in the file.
    assert code == (1 if "has no node" in message else 2)
    assert message in err


def test_options_of_tensorflow_are_refused_for_other_files(capsys, tmp_path):
    x = onnx.helper.make_tensor_value_info("x", 1, [2])
    y = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "in.onnx")
    with pytest.raises(opsetta.OpsettaError, match="is not a TensorFlow graph"):
        opsetta.load(tmp_path / "in.onnx", outputs=["y"])


def test_channels_first(capsys, tmp_path):
    relu = "sequential_1_1/re_lu_1/Relu"
    arguments = ["--inputs-as-nchw", "x", "--outputs", relu, "--outputs-as-nchw", f"{relu}:0"]
    model = converted(capsys, tmp_path, CNN, *arguments)
    assert shapes(model.graph.input) == {"x": [None, 3, 32, 32]}
    assert shapes(model.graph.output) == {relu: [None, 8, 16, 16]}
    x = np.load(DATA / "graphs" / "cnn.npz")["in:x:0"]
    plain, first = (
        opsetta.load(CNN, inputs_as_nchw=names).lower(13)(given)
        for names, given in (([], x), (["x"], x.transpose(0, 3, 1, 2)))
    )
    np.testing.assert_allclose(plain, first, rtol=1e-6)


def test_the_file_may_be_a_link_or_have_any_name(tmp_path):
    shutil.copy(CNN, tmp_path / "model")
    assert opsetta.load(tmp_path / "model").difference(opsetta.load(CNN)) is None


def test_a_string_is_no_list_of_names():
    with pytest.raises(opsetta.UsageError, match="inputs must be a list of names, not 'x'"):
        opsetta.load(CNN, inputs="x")
    with pytest.raises(opsetta.UsageError, match="weights= is only for source files"):
        opsetta.load(CNN, weights={})


STRINGS = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } }
  attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "letters" op: "StaticRegexReplace" input: "x" attr { key: "pattern" value { s: "(a|b)c?" } }
  attr { key: "rewrite" value { s: "\\\\1" } } attr { key: "replace_global" value { b: true } } }
node { name: "joined" op: "StringJoin" input: "letters" input: "x" attr { key: "N" value { i: 2 } }
  attr { key: "separator" value { s: "-" } } }
node { name: "separator" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
  attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape { } string_val: "," } } } }
node { name: "parts" op: "StringSplitV2" input: "joined" input: "separator"
  attr { key: "maxsplit" value { i: -1 } } }
node { name: "axis" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }
node { name: "y" op: "ReduceJoin" input: "parts:1" input: "axis" attr { key: "keep_dims" value { b: false } }
  attr { key: "separator" value { s: ";" } } }
"""


@pytest.mark.parametrize("opset", [9, 13, 23])
def test_strings_become_operators_of_the_extensions(capsys, tmp_path, opset):
    path = tmp_path / "strings.pbtxt"
    path.write_text(STRINGS)
    if opset < 20:
        assert run(capsys, "convert", path, "--opset", opset)[0] != 0
    model = converted(capsys, tmp_path, path, "--opset", opset, "--outputs", "parts:0,y", "--extensions")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    assert versions == {"": opset, "ai.onnx.contrib": 1}
    nodes = {node.op_type: node for node in model.graph.node if node.domain == "ai.onnx.contrib"}
    expected = {"StringRegexReplace", "StringSplit", "StringJoin"} | (
        {"StringConcat"} if opset < 20 else set()
    )
    assert set(nodes) == expected
    constants = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    operands = [constants[name].tolist() for name in nodes["StringSplit"].input[1:]]
    assert operands == [[","], [False]]
    assert [value.type.tensor_type.elem_type for value in model.graph.output] == [
        onnx.TensorProto.INT64,
        onnx.TensorProto.STRING,
    ]


def test_extensions_are_refused_for_onnx_files(capsys, tmp_path):
    path = tmp_path / "model.onnx"
    opsetta.load(CNN).lower(13).save(path)
    code, _, err = run(capsys, "convert", path, "-o", tmp_path / "out.onnx", "--opset", 13, "--extensions")
    assert code != 0
    assert "--extensions is for TensorFlow files" in err

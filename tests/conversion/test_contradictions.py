"""Files whose shapes contradict each other, which onnx does not see, are refused; others stay as they are."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opsetta
from opsetta import OpsettaError
from opsetta.exporter.lowering.conversion import written_shapes

from .test_unusual_files import check_conversions, lowered, model_of, stored, value

INT64 = TensorProto.INT64
node = helper.make_node


def centered(scale):
    """A scale for a mean whose axes are a Range, which onnx does not compute."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Size", ["shape"], ["rank"]),
        node("Add", ["rank", "minus"], ["first"]),
        node("Range", ["first", "rank", "one"], ["axes"]),
        node("ReduceMean", ["x", "axes"], ["mean"]),
        node("Sub", ["x", "mean"], ["centered"]),
        node("Mul", ["centered", "w"], ["y"]),
    ]
    constants = [stored("minus", -1), stored("one", 1)]
    inputs = [value("x", [2, 3, 4]), value("w", scale)]
    return model_of(nodes, inputs, [value("y", None)], constants, 18)


def reshaped(count):
    """Numbers of a Range as a shape."""
    nodes = [
        node("Range", ["one", "four", "one"], ["sizes"]),
        node("Reshape", ["x", "sizes"], ["grid"]),
        node("Add", ["grid", "w"], ["y"]),
    ]
    constants = [stored("one", 1), stored("four", 4)]
    return model_of(nodes, [value("x", [6]), value("w", count)], [value("y", None)], constants, 18)


def reduced(rank):
    """A reduction over a computed axis, which keeps the rank."""
    outputs = [value("y", [f"d{axis}" for axis in range(rank)])]
    inputs = [value("x", [3, 2]), value("axes", [1], INT64)]
    return model_of([node("ReduceL1", ["x", "axes"], ["y"], keepdims=1)], inputs, outputs, (), 18)


def in_a_branch(inner):
    """A graph in a branch of an If."""
    body = helper.make_graph(inner.graph.node, "then", [], [value("y", None)])
    other = helper.make_graph([node("Identity", ["x"], ["z"])], "else", [], [value("z", None)])
    nodes = [node("If", ["c"], ["out"], then_branch=body, else_branch=other)]
    inputs = [*inner.graph.input, value("c", [], TensorProto.BOOL)]
    return model_of(nodes, inputs, [value("out", None)], inner.graph.initializer, 18)


CONTRADICTIONS = {
    "scale": (centered([5]), centered([4])),
    "shape": (reshaped([1, 2, 5]), reshaped([1, 2, 3])),
    "rank": (reduced(3), reduced(2)),
    "branch": (in_a_branch(centered([5])), in_a_branch(centered([4]))),
    "shape in a branch": (in_a_branch(reshaped([1, 2, 5])), in_a_branch(reshaped([1, 2, 3]))),
}


def clear_ranks(model):
    for output in model.graph.output:
        if not output.type.tensor_type.shape.dim:
            output.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_that_becomes_known_is_refused(name, tmp_path):
    wrong, right = CONTRADICTIONS[name]
    for opset in (13, 17):
        with pytest.raises(OpsettaError, match=r"contradict|does not take|do not broadcast"):
            lowered(wrong, tmp_path / "wrong.onnx", opset)
        onnx.shape_inference.infer_shapes(lowered(right, tmp_path / "right.onnx", opset), strict_mode=True)


def test_the_error_names_the_node_of_the_file(tmp_path):
    with pytest.raises(opsetta.InvalidNodesError, match=r"Mul \(.*'y'\)"):
        lowered(centered([5]), tmp_path / "model.onnx", 17)


def test_a_file_that_onnx_refuses_is_converted_as_it_is(tmp_path):
    model = centered([4])
    model.graph.value_info.append(value("centered", [7, 7]))
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.shape_inference.infer_shapes(model, strict_mode=True)
    assert lowered(model, tmp_path / "model.onnx", 17).opset_import[0].version == 17


def test_ordinary_conversions_infer_nothing_twice(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(written_shapes, "infer_shapes", lambda *model, **options: calls.append(model))
    nodes = [
        node("LayerNormalization", ["x", "s"], ["n"]),
        node("Gemm", ["n", "w"], ["g"]),
        node("HardSwish", ["g"], ["h"]),
        node("Softmax", ["h"], ["y"], axis=-1),
    ]
    inputs = [value("x", ["n", 4]), value("s", [4]), value("w", [4, 3])]
    model = model_of(nodes, inputs, [value("y", ["n", 3])], (), 17)
    for opset in (9, 13):
        lowered(model, tmp_path / "model.onnx", opset)
    assert not calls


WRONG = [
    (node("ArgMax", ["x"], ["y"]), "the file declares its result 'y' as FLOAT; ArgMax gives INT64"),
    (node("Relu", ["x"], ["y"], slope=1), "it has no attribute 'slope'"),
    (node("Gelu", ["x"], ["y"]), "the operator does not exist at opset 13; it begins at 20"),
    (node("Squeeze", ["x"], ["y"], axes=[0]), "it has no attribute 'axes'"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_file_that_is_wrong_is_blamed_and_not_the_opset(wrong, message, tmp_path):
    model = model_of([wrong], [value("x", [1, 4])], [value("y", [1, 4])], [], 13)
    with pytest.raises(opsetta.InvalidNodesError, match="the file is not valid at its opset 13") as caught:
        lowered(model, tmp_path / "m.onnx", 17)
    assert message in str(caught.value)


def mapped():
    """A sequence whose tensors are negated."""
    body = helper.make_graph([node("Neg", ["e"], ["o"])], "map", [value("e", None)], [value("o", None)])
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=0),
        node("SequenceMap", ["s"], ["t"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    return model_of(nodes, [value("x", [4, 3])], [value("y", None)], (), 17)


def scattered():
    """Rows of a small matrix, at positions that onnx propagates as if they were sizes."""
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], reduction="max")]
    constants = [stored("i", [[1], [1]]), stored("u", [[0.5, 2.0, -1.0], [3.0, 0.0, -9.0]], np.float32)]
    return model_of(nodes, [value("x", [4, 3])], [value("y", [4, 3])], constants, 18)


@pytest.mark.parametrize("model", [mapped(), scattered()], ids=["sequence", "matrix"])
def test_what_only_inference_mistakes_is_no_contradiction(model, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(4, 3) / 4
    check_conversions(model, tmp_path / "model.onnx", {"x": x}, opsets=(13, 16))


@pytest.mark.parametrize("opset", [9, 17, 22])
@pytest.mark.parametrize(
    ("interface", "message"), [("outputs", "has no outputs"), ("inputs", "no type for its input 'x'")]
)
def test_a_model_that_no_runtime_loads_is_not_converted(interface, message, opset, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    proto = onnx.parser.parse_model(text)
    if interface == "outputs":
        proto.graph.ClearField("output")
    else:
        proto.graph.input[0].ClearField("type")
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(opsetta.GraphError, match=message):
        opsetta.load(tmp_path / "m.onnx").lower(opset)

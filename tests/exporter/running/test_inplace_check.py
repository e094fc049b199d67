"""The checker of in-place annotations: what it accepts, and every reason for which it does not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import opsetta
from opsetta import AnnotationError, ModelFileError, check_inplace
from opsetta.registration import INPLACE, MAY_OVERWRITE

HEADER = '<ir_version: 10, opset_import: ["": 18, "mylib": 1]>'


def annotated(text: str, **annotations: str) -> onnx.ModelProto:
    """A model in ONNX's text form, annotated by the names of first outputs."""
    model = onnx.parser.parse_model(HEADER + text)
    for node in _nodes(model):
        if node.output[0] in annotations:
            node.metadata_props.add(key=MAY_OVERWRITE, value=annotations[node.output[0]])
    return model


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    def inside(body: onnx.GraphProto | onnx.FunctionProto) -> list[onnx.NodeProto]:
        inner = [n for node in body.node for a in node.attribute if a.HasField("g") for n in inside(a.g)]
        return [*body.node, *inner]

    return [node for body in (model.graph, *model.functions) for node in inside(body)]


def reason(model: onnx.ModelProto) -> str:
    with pytest.raises(AnnotationError) as caught:
        check_inplace(model)
    [unsafe] = caught.value.unsafe
    return unsafe.reason


LINE = "g (float[n] x) => (float[n] y) { a = Relu(x) y = Exp(a) }"
FORM = "it is not of the form OUTPUT:INPUT[,OUTPUT:INPUT...]"
TWICE = "it names an output or an input twice"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", FORM), ("true", FORM), ("0", FORM), ("0:0,", FORM), ("0: 0", FORM), ("-1:0", FORM),
        ("00:0", FORM), ("0:" + 5000 * "9", FORM), ("\u0660:0", FORM), ("0:0,0:1", TWICE), ("0:0,1:0", TWICE),
        ("1:0", "the node has no output 1"), ("0:1", "the node has no input 1"),
    ],
)  # fmt: skip
def test_text_that_says_nothing(text: str, expected: str) -> None:
    assert reason(annotated(LINE, y=text)) == expected


UNSAFE = {
    "an input": (LINE, {"a": "0:0"}, "'x' is, or may share memory with, an input"),
    "an initializer": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Add(w, x) }",
        {"y": "0:0"},
        "'w' is, or may share memory with, an initializer",
    ),
    "a constant by way of a branch": (
        "g (float[1] x, bool c) => (float[1] y) { b = If(c) <then_branch = t () => (o) "
        "{ o = Constant<value = float[1] {1}>() }, else_branch = e () => (p) { p = Neg(x) }> y = Exp(b) }",
        {"y": "0:0"},
        "'b' is, or may share memory with, a constant",
    ),
    "an output": (
        "g (float[n] x) => (float[n] a, float[n] y) { a = Relu(x) y = Exp(a) }",
        {"y": "0:0"},
        "it overwrites 'a', which the graph returns",
    ),
    "what is read later": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) b = Exp(a) y = Add(a, b) }",
        {"b": "0:0"},
        "it overwrites 'a', which the Add of 'y' reads",
    ),
    "a view that is read later": (
        "g (float[4] x, int64[2] s) => (float[k,l] y) "
        "{ a = Relu(x) r = Reshape(a, s) b = Exp(a) y = Neg(r) }",
        {"b": "0:0"},
        "it overwrites 'r', which the Neg of 'y' reads",
    ),
    "what a branch reads later": (
        "g (float[n] x, bool c) => (float[n] y) { a = Relu(x) b = Exp(a) "
        "y = If(c) <then_branch = t () => (o) { o = Add(a, b) }, else_branch = e () => (p) { p = Neg(b) }> }",
        {"b": "0:0"},
        "it overwrites 'a', which the Add of 'o' reads",
    ),
    "what the next iteration reads": (
        "g (float[n] x, int64 m, bool c) => (float[n] y) { a = Relu(x) "
        "y = Loop(m, c, x) <body = t (int64 i, bool d, float[n] f) => (bool e, float[n] r) "
        "{ e = Identity(d) q = Exp(a) r = Add(f, q) }> }",
        {"q": "0:0"},
        "'a' is, or may share memory with, a value of an outer graph",
    ),
    "what a loop carries": (
        "g (float[n] x, int64 m, bool c) => (float[n] y) { a = Relu(x) "
        "y = Loop(m, c, a) <body = t (int64 i, bool d, float[n] f) => (bool e, float[n] r) "
        "{ e = Identity(d) r = Exp(f) }> }",
        {"r": "0:0"},
        "'f' is, or may share memory with, a value of an outer graph",
    ),
    "the iteration number": (
        "g (int64 m, bool c, int64 x) => (int64 y) { "
        "y = Loop(m, c, x) <body = t (int64 i, bool d, int64 f) => (bool e, int64 r) "
        "{ e = Identity(d) r = Neg(i) }> }",
        {"r": "0:0"},
        "'i' is, or may share memory with, an input",
    ),
    "updates in the memory of the data": (
        "g (float[1] x, int64[1] i) => (float[1] y) { a = Relu(x) y = ScatterElements(a, i, a) }",
        {"y": "0:0"},
        "another input may lie in the memory of 'a'",
    ),
    "what a sequence holds": (
        "g (float[n] x, int64 i) => (float[n] y) { a = Relu(x) s = SequenceConstruct(a, x) "
        "b = Exp(a) y = SequenceAt(s, i) }",
        {"b": "0:0"},
        "'a' is, or may share memory with, an input",
    ),
    "what another domain's operator gave": (
        "g (float[n] x) => (float[n] y) { b = mylib.Op(x) y = Exp(b) }",
        {"y": "0:0"},
        "'b' is, or may share memory with, what Op takes or gives, which may keep it",
    ),
    "another domain's operator": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) y = mylib.Relu(a) }",
        {"y": "0:0"},
        "Relu is not known to write output 0 over input 0",
    ),
    "what reads on while it writes": (
        "g (float[2,2] x) => (float[2,2] y) { a = Relu(x) y = MatMul(a, a) }",
        {"y": "0:0"},
        "MatMul is not known to write output 0 over input 0",
    ),
    "another type": (
        "g (float[n] x) => (int32[n] y) { a = Relu(x) y = Cast<to = 6>(a) }",
        {"y": "0:0"},
        "it is not proven that 'a' has the element type of 'y'",
    ),
    "another size": (
        "g (float[n] x, float[m,1] z) => (float[m,n] y) { a = Relu(x) y = Add(a, z) }",
        {"y": "0:0"},
        "it is not proven that 'a' has the size of 'y'",
    ),
    "an input of a function": (
        "g (float[n] x) => (float[n] y) { y = mylib.F(x) }"
        '<domain: "mylib", opset_import: ["": 18]> F (f) => (r) { r = Exp(f) }',
        {"r": "0:0"},
        "'f' is, or may share memory with, an input",
    ),
    "what a function returns": (
        "g (float[n] x) => (float[n] y, float[n] z) { z, y = mylib.F(x) }"
        '<domain: "mylib", opset_import: ["": 18]> F (f) => (p, r) { p = Neg(f) r = Exp(p) }',
        {"r": "0:0"},
        "it overwrites 'p', which function 'F' returns",
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_annotations(name: str) -> None:
    text, annotations, expected = UNSAFE[name]
    assert reason(annotated(text, **annotations)) == expected


SAFE = {
    "the last reader": (LINE, {"y": "0:0"}),
    "either operand, not only the first": (
        "g (float[n] x) => (float[n] y) { a = Relu(x) b = Exp(x) y = Add(a, b) }",
        {"y": "0:1"},
    ),
    "a chain in one memory": (
        "g (float[4] x, int64[2] s) => (float[k,l] y) "
        "{ a = Relu(x) b = Exp(a) r = Reshape(b, s) y = Neg(r) }",
        {"b": "0:0", "r": "0:0", "y": "0:0"},
    ),
    "a value that came out of a loop": (
        "g (float[n] x, int64 m, bool c) => (float[n] y) { a = Relu(x) "
        "b = Loop(m, c, a) <body = t (int64 i, bool d, float[n] f) => (bool e, float[n] r) "
        "{ e = Identity(d) p = Exp(f) r = Neg(p) }> y = Sin(b) }",
        {"r": "0:0", "y": "0:0"},
    ),
    "inside a function, without types": (
        "g (float[n] x) => (float[n] y) { y = mylib.F(x) }"
        '<domain: "mylib", opset_import: ["": 18]> F (f) => (r) { p = Neg(f) r = Mul(p, p) }',
        {"r": "0:0"},
    ),
}


@pytest.mark.parametrize("name", SAFE)
def test_safe_annotations(name: str) -> None:
    text, annotations = SAFE[name]
    model = annotated(text, **annotations)
    before = model.SerializeToString()
    assert check_inplace(model) == len(annotations)
    assert check_inplace(ir.from_proto(model)) == len(annotations)
    assert model.SerializeToString() == before


def test_every_unsafe_annotation_is_named() -> None:
    model = annotated(LINE, a="0:0", y="no")
    model.graph.node[0].name = "first"
    model.graph.node[1].metadata_props.add(key=INPLACE, value="0:0")
    with pytest.raises(AnnotationError) as caught:
        check_inplace(model)
    assert [(entry.node, entry.annotation) for entry in caught.value.unsafe] == [
        ("node 'first'", f"{MAY_OVERWRITE} = 0:0"),
        ("the Exp of 'y'", f"{INPLACE} = 0:0"),
        ("the Exp of 'y'", f"{MAY_OVERWRITE} = no"),
    ]
    assert str(caught.value).startswith(
        "3 in-place annotations are not known to be safe:\n  - node 'first': "
    )


def test_an_annotation_that_stands_twice() -> None:
    model = annotated(LINE, y="0:0")
    model.graph.node[1].metadata_props.add(key=MAY_OVERWRITE, value="0:0")
    assert reason(model) == "it occurs twice"


def test_opsets_below_7_are_not_known() -> None:
    model = annotated(LINE, y="0:0")
    model.opset_import[0].version = 6
    assert reason(model) == "opset 6 is below 7, from which on operators are known"


def test_a_model_without_annotations_has_none() -> None:
    assert check_inplace(annotated(LINE)) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[n] x) => (float[n] y) { y = Exp(a) }", "reads 'a', which no node before it computes"),
        ("g (float[n] x) => (float[n] z) { y = Exp(x) }", "the graph returns 'z', which no node"),
        ("g (float[n] x) => (float[n] y) { y = Exp(x) y = Neg(x) }", "'y' is computed twice"),
        ("g (float[2] x) => (float[3] y) { y = Exp(x) }", "the model is not valid: .*differ"),
    ],
)
def test_graphs_that_are_not_well_formed(text: str, expected: str) -> None:
    with pytest.raises(ModelFileError, match=expected):
        check_inplace(annotated(text, y="0:0"))


def test_negative_sizes_are_unknown_sizes() -> None:
    model = annotated("g (float[n] x, float[m] z) => (float[k] y) { a = Relu(x) y = Add(a, z) }", y="0:0")
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = -1
    assert reason(model) == "it is not proven that 'a' has the size of 'y'"


def test_large_weights_are_not_read(tmp_path) -> None:
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    node = helper.make_node("Add", ["w", "x"], ["y"])
    node.metadata_props.add(key=MAY_OVERWRITE, value="0:0")
    infos = [helper.make_tensor_value_info(name, 1, [64, 64]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [weights])
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph), path, save_as_external_data=True, location="weights", size_threshold=0
    )
    (tmp_path / "weights").unlink()
    assert reason(path) == "'w' is, or may share memory with, an initializer"


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        check_inplace(tmp_path / "none.onnx")
    assert issubclass(opsetta.AnnotationError, opsetta.OpsettaError)

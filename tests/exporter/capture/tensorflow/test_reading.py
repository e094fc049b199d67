"""TensorFlow files are read unchanged, or refused with a short reason."""

import re

import pytest
from google.protobuf import text_format
from onnx import helper

from opsetta import ModelFileError, UsageError
from opsetta.exporter.capture.tensorflow.graph_reading import read_graph
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.files.reading import TRUSTED, Bounds
from tests.exporter.capture.tensorflow.graph_files import GRAPH, SAVED_MODELS, graph, meta_graph, saved_model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def refused(path, message, **options):
    with pytest.raises(ModelFileError, match=message) as caught:
        read_graph(path, **options)
    assert str(caught.value).startswith(f"'{path}'")
    assert len(str(caught.value)) < len(str(path)) + 200


@pytest.mark.parametrize("form", ["binary", "text"])
def test_a_graph_is_read_in_both_forms(path, form):
    path.write_bytes(graph().SerializeToString() if form == "binary" else GRAPH.encode())
    for options in ({}, {"encoding": form}, {"file_type": "GraphDef"}):
        read = read_graph(path, **options)
        assert (read.file_type, read.encoding) == ("GraphDef", form)
        assert read.graph_def == graph()
        assert (read.inputs, read.outputs, read.signature, read.checkpoint_prefix) == ({}, {}, None, None)
    assert read.definitions("Mul").input_arg[1].name == "y"


def test_a_wrong_flag_is_an_error_that_says_what_the_file_is(path):
    path.write_bytes(GRAPH.encode())
    refused(path, "is a text GraphDef, not a binary GraphDef$", encoding="binary")
    path.write_bytes(saved_model().SerializeToString())
    refused(path, "is a binary SavedModel, not a binary GraphDef$", file_type="GraphDef")
    with pytest.raises(UsageError, match="one of binary, text, not 'json'"):
        read_graph(path, encoding="json")
    with pytest.raises(UsageError, match="one of GraphDef, MetaGraphDef, SavedModel, not 'graph'"):
        read_graph(path, file_type="graph")


def test_a_graph_without_nodes_is_read_where_the_caller_says_what_it_is(path):
    path.write_bytes(message_type("GraphDef")(versions={"producer": 5}).SerializeToString())
    refused(path, "is not a TensorFlow graph: it is not a GraphDef, MetaGraphDef or SavedModel")
    assert len(read_graph(path, file_type="GraphDef", encoding="binary").graph_def.node) == 0


def test_a_meta_graph_defines_its_own_operators(path):
    path.write_bytes(meta_graph().SerializeToString())
    read = read_graph(path)
    assert read.file_type == "MetaGraphDef"
    assert read.graph_def == graph()
    assert read.definitions("MyOwn").name == "MyOwn"
    assert read.definitions("TheirOwn") is None
    assert read.meta_graph.meta_info_def.tags == ["serve"]


def test_the_checkpoint_of_a_meta_graph_is_beside_it(tmp_path):
    path = tmp_path / "model.ckpt-5.meta"
    path.write_bytes(meta_graph().SerializeToString())
    assert read_graph(path).checkpoint_prefix is None
    (tmp_path / "model.ckpt-5").touch()
    assert read_graph(path).checkpoint_prefix == tmp_path / "model.ckpt-5"
    (tmp_path / "model.ckpt-5").unlink()
    (tmp_path / "model.ckpt-5.index").touch()
    assert read_graph(path).checkpoint_prefix == tmp_path / "model.ckpt-5"


@pytest.mark.parametrize("place", ["objects", "objects/saved_model.pb"])
def test_a_saved_model_of_tensorflow_2(place):
    read = read_graph(SAVED_MODELS / place)
    assert (read.file_type, read.encoding, read.signature) == ("SavedModel", "binary", "serving_default")
    assert read.inputs == {"x": "serving_default_x:0"}
    assert read.outputs == {"largest": "StatefulPartitionedCall:0", "scaled": "StatefulPartitionedCall:1"}
    assert list(read.outputs) == sorted(read.outputs)
    assert read.checkpoint_prefix == SAVED_MODELS / "objects" / "variables" / "variables"
    functions = {function.signature.name for function in read.graph_def.library.function}
    assert any(name.startswith("__inference_signature_wrapper") for name in functions)
    assert read_graph(SAVED_MODELS / place, signature="shifted").inputs == {"shift": "shifted_shift:0"}


def test_the_graphs_of_a_saved_model_are_chosen_by_tags():
    folder = SAVED_MODELS / "tagged"
    serving = read_graph(folder, signature="predict")
    assert serving.encoding == "text"
    assert serving.meta_graph.meta_info_def.tags == ["serve"]
    training = read_graph(folder, tags=["train"], signature="doubled")
    assert training.meta_graph.meta_info_def.tags == ["train"]
    assert (training.inputs, training.outputs) == ({"left": "x:0"}, {"product": "add:0"})
    message = (
        r"no graph with the tags \{'gpu', 'serve'\}; the tags of its graphs are \{'train'\}, \{'serve'\}$"
    )
    refused(folder, message, tags=["serve", "gpu"])


def test_the_signatures_are_listed_where_none_can_be_chosen():
    folder = SAVED_MODELS / "tagged"
    refused(folder, "no signature 'serving_default'; its signatures are 'doubled', 'predict'$")
    refused(folder, "no signature 'no'; its signatures are 'doubled', 'predict'$", signature="no")
    assert read_graph(folder, need_signature=False).signature is None
    assert read_graph(SAVED_MODELS / "objects", need_signature=False).signature == "serving_default"


def test_the_only_graph_and_the_only_signature_need_no_name(path):
    model = saved_model()
    model.meta_graphs[0].meta_info_def.tags[:] = ["mine"]
    signature = model.meta_graphs[0].signature_def["mine"]
    signature.inputs["a"].name, signature.outputs["b"].name = "x:0", "y:0"
    model.meta_graphs[0].signature_def["__saved_model_init_op"].outputs["i"].name = "init"
    path.write_bytes(model.SerializeToString())
    assert read_graph(path).signature == "mine"
    del model.meta_graphs[0].signature_def["mine"]
    path.write_bytes(model.SerializeToString())
    assert read_graph(path).signature is None


def test_a_signature_of_sparse_tensors_is_refused(path):
    model = saved_model()
    model.meta_graphs[0].signature_def["mine"].inputs["a"].coo_sparse.values_tensor_name = "x:0"
    path.write_bytes(model.SerializeToString())
    refused(path, "input 'a' of the signature 'mine' is a coo sparse; only dense tensors are supported")


def test_a_graph_has_neither_tags_nor_signatures(path):
    path.write_bytes(GRAPH.encode())
    for options in ({"tags": ["serve"]}, {"signature": "serving_default"}):
        with pytest.raises(UsageError, match="is a GraphDef, which has neither tags nor signatures"):
            read_graph(path, **options)


def test_other_files_are_refused(path, tmp_path):
    for data, message in [
        (b"", "is not a TensorFlow graph: it is empty$"),
        (b"no graph", "is not a TensorFlow graph: it is not a GraphDef"),
        (helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString(), "it is not a GraphDef"),
        (bytes(100), "it is not a GraphDef"),
    ]:
        path.write_bytes(data)
        refused(path, message)
    refused(tmp_path, "cannot be read: it is a folder")
    refused(tmp_path / "missing", "cannot be read: No such file")


def test_every_truncation_is_refused_or_is_a_whole_graph(path):
    data = graph().SerializeToString(deterministic=True)
    reasons = set()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        try:
            assert data.startswith(read_graph(path).graph_def.SerializeToString(deterministic=True))
        except ModelFileError as error:
            reasons.add(re.sub(".*: ", "", str(error)))
    assert reasons == {
        "it is empty",
        # Before the first operator, anything may follow.
        "it is not a GraphDef, MetaGraphDef or SavedModel",
        "it is truncated, or not a protobuf message",
    }


def test_text_that_is_no_graph_is_refused_with_its_place(path):
    path.write_text('node { name: "x" op: "A"\n nam: 1 }')
    refused(path, 'is not a GraphDef: line 2, column 2: .*no field named "nam"')
    path.write_bytes(b'node { name: "\xff" }')
    refused(path, "is not a GraphDef: it is not text in UTF-8, at byte 14")


def test_a_number_that_no_enumeration_has_is_refused(path):
    for value in ("type: 1099511627776", "list { type: 1099511627776 }"):
        path.write_text('node { name: "x" op: "A" attr { key: "T" value { ' + value + " } } }")
        refused(path, "is not a GraphDef: .*out of range")


def test_a_message_of_any_type_in_a_text(path):
    text = "meta_info_def { any_info { [type.googleapis.com/%s] { producer: 3 } } } graph_def {" + GRAPH + "}"
    path.write_text(text % "tensorflow.VersionDef")
    version = message_type("VersionDef")()
    assert read_graph(path).meta_graph.meta_info_def.any_info.Unpack(version)
    assert version.producer == 3
    path.write_text(text % "theirs.VersionDef")
    refused(path, "is not a MetaGraphDef: Type theirs.VersionDef not found")


def test_a_text_that_is_not_utf8_in_a_binary_file_is_refused(path):
    path.write_bytes(b"\x0a\x08\x0a\x01\xff\x12\x03Add")
    refused(path, "is not a GraphDef: it is truncated, or not a protobuf message")


def nested(levels):
    """A function in an attribute of a function, and so on."""
    value = message_type("AttrValue")(i=1)
    for _ in range(levels):
        outer = message_type("AttrValue")()
        outer.func.attr["f"].CopyFrom(value)
        value = outer
    made = graph()
    made.node[0].attr["deep"].CopyFrom(value)
    return made


def test_nesting_is_bounded_in_both_forms(path):
    deepest = nested(25)
    path.write_bytes(deepest.SerializeToString())
    assert read_graph(path).graph_def == deepest
    path.write_text(text_format.MessageToString(deepest))
    assert read_graph(path).graph_def == deepest
    path.write_bytes(nested(60).SerializeToString())
    # Only later releases of protobuf say which it is.
    refused(path, "nested more than 100 deep|truncated, or not a protobuf message")
    for levels in (101, 300_000):
        path.write_text("node " + "{ attr { value { func " * levels)
        refused(path, "nested more than 100 deep")


@pytest.mark.parametrize(
    "inner", [b"\x1a\x00", b"\x2a\x00", b"\x2a\x05\x0a\x01a\x12\x00"], ids=["inputs", "attributes", "names"]
)
def test_what_protobuf_takes_is_counted_before_it_is_parsed(path, inner):
    body = b"\x0a\x01x\x12\x03Add" + inner * (100_000 // len(inner))
    path.write_bytes(
        b"\x0a" + bytes([len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14]) + body
    )
    refused(path, "protobuf would take more than 0 MiB for 1000.. bytes", bounds=Bounds(parsed=200_000))
    refused(path, "more than 100 fields", bounds=Bounds(parsed=200_000, fields=100))
    assert len(read_graph(path, bounds=TRUSTED).graph_def.node) == 1


def test_nodes_are_bounded(path):
    path.write_bytes(GRAPH.encode())
    refused(path, "it has 4 nodes, more than 3; if you trust the file", bounds=Bounds(nodes=3))
    refused(path, "it has 4 nodes, more than [0-3]; if you trust the file", bounds=Bounds(graph_nodes=0))
    assert len(read_graph(path, bounds=TRUSTED).graph_def.node) == 3


def test_the_memory_of_nodes_is_bounded(path):
    path.write_bytes(graph().SerializeToString())
    refused(path, "its nodes would need more than 0 MiB of memory, .* of 162 bytes; if you trust",
            bounds=Bounds(memory=1000))  # fmt: skip
    assert read_graph(path, bounds=Bounds(memory=10_000)).graph_def == graph()


def test_constants_repeat_elements_within_a_bound(path):
    made = graph()
    made.node[1].attr["value"].tensor.tensor_shape.dim[0].size = 10_000_000
    path.write_bytes(made.SerializeToString())
    assert read_graph(path).graph_def == made
    body = made.library.function[0].node_def
    for _ in range(4):
        body.add().CopyFrom(made.node[1])
    path.write_bytes(made.SerializeToString())
    refused(path, "its constants repeat elements to more than 171 MiB; if you trust the file")
    assert read_graph(path, bounds=TRUSTED).graph_def == made
    made.node[1].attr["value"].tensor.tensor_shape.dim[0].size = -1
    path.write_bytes(made.SerializeToString())
    refused(path, "the constant 'weight' has a negative size, -1$", bounds=TRUSTED)


@pytest.mark.usefixtures("two_minutes_at_most")
def test_many_nodes_are_read(path):
    made = graph()
    for index in range(30_000):
        node = made.node.add(name=f"n{index}", op="Identity", input=["x"])
        node.attr["T"].type = 1
    path.write_bytes(made.SerializeToString())
    assert len(read_graph(path).graph_def.node) == 30_003

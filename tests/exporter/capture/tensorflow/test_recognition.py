"""Files of other frameworks are not recognised as TensorFlow's, nor the reverse."""

import json
import os
import pathlib
import random

import onnx
import pytest
from google.protobuf import text_format
from onnx import helper

from opsetta import ModelFileError
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.recognition import recognise
from opsetta.exporter.files.reading import read_model
from tests.exporter.capture.tensorflow.graph_files import DATA, SAVED_MODELS, graph, meta_graph, saved_model
from tests.fuzz import corpus

MADE = {"GraphDef": graph, "MetaGraphDef": meta_graph, "SavedModel": saved_model}


@pytest.mark.parametrize("kind", MADE)
def test_each_kind_is_recognised_in_both_forms(kind, tmp_path):
    message = MADE[kind]()
    written = {
        "binary": message.SerializeToString(),
        "text": text_format.MessageToString(message).encode(),
    }
    for form, data in written.items():
        assert recognise(data) == (kind, form)
        # The name says nothing.
        path = tmp_path / "model.onnx"
        path.write_bytes(data)
        assert recognise(path) == (kind, form)
        with pytest.raises(ModelFileError, match="is not an ONNX file"):
            read_model(path)


def test_the_folder_of_a_saved_model_is_recognised():
    assert recognise(SAVED_MODELS / "objects") == ("SavedModel", "binary")
    assert recognise(os.fspath(SAVED_MODELS / "tagged")) == ("SavedModel", "text")
    assert recognise(SAVED_MODELS) is None


def test_no_onnx_file_is_recognised():
    assert [data[:80] for data in corpus.files() if recognise(data) is not None] == []
    paths = list((pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))
    assert len(paths) > 20
    assert [path for path in paths if recognise(path) is not None] == []


def test_an_onnx_file_that_looks_like_a_saved_model_is_not_one():
    node = helper.make_node("Relu", ["x"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [], []), producer_name="\n\0")
    assert recognise(model.SerializeToString()) is None


def test_a_caffe2_net_is_not_recognised():
    # NetDef: the name, then operators of inputs, outputs and a type.
    operator = b"\x0a\x04data\x12\x05conv1\x22\x04Conv"
    net = b"\x0a\x08squeezed" + b"\x12" + bytes([len(operator)]) + operator
    assert recognise(net) is None
    assert recognise(b'name: "squeezed"\nop { input: "data" output: "conv1" type: "Conv" }') is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\x0a\x00",
        b"\x08",
        b"PK\x03\x04",
        b"\x89HDF\r\n\x1a\n",
        b"\x1c\0\0\0TFL3",
        b"{}",
        b"node",
    ],
)
def test_other_bytes_are_not_recognised(data):
    assert recognise(data) is None


def test_random_bytes_are_not_recognised():
    chance = random.Random(0)
    assert not any(recognise(chance.randbytes(chance.randrange(200))) for _ in range(20_000))


def test_other_files_of_tensorflow_are_not_recognised(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_text('model_checkpoint_path: "model.ckpt-5"\n')
    assert recognise(path) is None
    for path in SAVED_MODELS.rglob("variables.*"):
        assert recognise(path) is None
    assert recognise(DATA / "tensor_protos.json") is None
    assert json.loads((DATA / "tensor_protos.json").read_text())


def test_a_part_of_a_graph_is_recognised_by_its_first_nodes(tmp_path):
    large = graph()
    large.node[1].attr["value"].tensor.tensor_content = bytes(3_000_000)
    path = tmp_path / "frozen.pb"
    path.write_bytes(large.SerializeToString())
    assert recognise(path) == ("GraphDef", "binary")
    first = message_type("GraphDef")(node=[large.node[1]])
    path.write_bytes(first.SerializeToString())
    assert recognise(path) == ("GraphDef", "binary")


def test_a_file_that_cannot_be_read_is_not_recognised(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "saved_model.pb").mkdir()
    assert recognise(tmp_path / "pipe") is None
    assert recognise(tmp_path / "missing") is None
    assert recognise(tmp_path) is None
    assert recognise("a\0b") is None

"""Files of nets: both encodings, other files, and damaged ones."""

import os
import random

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import helper

import opsetta
from opsetta.exporter.capture.caffe2.messages import message_type
from opsetta.exporter.capture.caffe2.net_reading import _recognise_encoding, is_net, read_net
from opsetta.exporter.capture.tensorflow.messages import message_type as of_tensorflow
from opsetta.exporter.capture.tensorflow.recognition import recognise
from opsetta.exporter.files.reading import BOUNDS

from .nets import Net, run

SQUARE = """# A comment.
name: "square"
op {
  input: "data"
  input: "w"
  output: "y"
  type: "Mul"
  arg { name: "broadcast" i: 1 }
  device_option { device_type: 1 cuda_gpu_id: 0 }
}
external_input: "data"
external_input: "w"
external_output: "y"
"""
WEIGHTS = """op {
  output: "w"
  type: "GivenTensorFill"
  arg { name: "shape" ints: 2 }
  arg { name: "values" floats: 2.0 floats: 3.5 }
}
"""


def small_net():
    net = Net("small")
    net.fill("w", np.ones(4, np.float32))
    net.add("Mul", ["data", "w"], "y")
    return net.finish(["data"], ["y"])


def test_text(tmp_path):
    (tmp_path / "predict_net.pbtxt").write_text(SQUARE)
    (tmp_path / "init_net.pbtxt").write_text(WEIGHTS)
    model = opsetta.load(tmp_path / "predict_net.pbtxt", shapes={"data": [2]})
    [found] = run(model.lower(13), {"data": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(found, [2, 7])


@pytest.mark.parametrize("name", ["net.pb", "net.pbtxt", "net.onnx", "net"])
@pytest.mark.parametrize("form", ["binary", "text"])
def test_the_content_decides_the_form(name, form, tmp_path):
    net = small_net()
    data = net.SerializeToString() if form == "binary" else text_format.MessageToString(net).encode()
    path = tmp_path / name
    path.write_bytes(data)
    assert is_net(path)
    assert read_net(path, BOUNDS) == net
    assert opsetta.load(path).output_names == ["y"]


def test_nets_without_a_name_and_with_unpacked_lists(tmp_path):
    path = tmp_path / "net.pb"
    argument = b"\x0a\x05shape\x30\x02\x30\x01"
    values = b"\x0a\x06values" + b"".join(b"\x2d" + np.float32(x).tobytes() for x in (1.5, -2))
    fill = b"\x12\x01w\x22\x0fGivenTensorFill"
    fill += b"".join(b"\x2a" + bytes([len(part)]) + part for part in (argument, values))
    relu = b"\x0a\x01w\x12\x01y\x22\x04Relu"
    path.write_bytes(b"".join(b"\x12" + bytes([len(part)]) + part for part in (fill, relu)))
    [found] = run(opsetta.load(path).lower(9), {})
    np.testing.assert_array_equal(found, [[1.5], [0]])


def test_other_files_are_no_nets(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    value = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", value[:1], value[1:]), producer_name="pytorch")
    graph = b"\x0a\x1a\x0a\x04data\x12\x0bPlaceholder\x2a\x05\x0a\x01T\x12\x00"
    text = 'node { name: "x" op: "Placeholder" }'
    for index, data in enumerate(
        [
            model.SerializeToString(),
            str(model).encode(),
            graph,
            text.encode(),
            b"",
            b"\x12",
            b"\x12\x04abcd",
            b"name",
        ]
    ):
        path = tmp_path / f"file{index}"
        path.write_bytes(data)
        assert not is_net(path), data[:20]
    assert not is_net(tmp_path)
    assert not is_net(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    assert not is_net(tmp_path / "pipe")
    path.write_bytes(model.SerializeToString())
    assert opsetta.load(path).lower(13).model_proto.graph.node[0].op_type == "Relu"
    with pytest.raises(opsetta.ModelFileError, match="not a Caffe2 net"):
        opsetta.load(path, init_net=path)
    assert onnx.load(path) == model


def test_nets_and_graphs_of_tensorflow_are_told_apart():
    graph = of_tensorflow("GraphDef")()
    graph.node.add(name="data", op="Placeholder")
    graph.node.add(name="y", op="Relu", input=["data"])
    graph.versions.producer = 24
    unnamed = small_net()
    unnamed.ClearField("name")
    for net in (small_net(), unnamed):
        for data in (net.SerializeToString(), text_format.MessageToString(net).encode()):
            assert recognise(data) is None
            assert _recognise_encoding(data)
    for data in (graph.SerializeToString(), text_format.MessageToString(graph).encode()):
        assert recognise(data) is not None
        assert not _recognise_encoding(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.ClearField("op"),
        lambda net: net.op[0].ClearField("type"),
        lambda net: net.op.add(input=["y"]),
    ],
)
def test_nets_without_operators(change, tmp_path):
    net = small_net()
    change(net)
    path = tmp_path / "net.pb"
    path.write_bytes(net.SerializeToString())
    with pytest.raises(opsetta.ModelFileError, match="not a Caffe2 net"):
        opsetta.load(path, init_net=path)


def test_every_truncation_is_refused_or_shorter(tmp_path):
    data = small_net().SerializeToString()
    path = tmp_path / "predict_net.pb"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        try:
            opsetta.load(path).lower(9)
        except opsetta.OpsettaError:
            continue


def test_text_that_is_not_utf_8(tmp_path):
    net = small_net()
    data = net.SerializeToString().replace(b"\x0a\x04data", b"\x0a\x04d\xff\xfea")
    path = tmp_path / "net.pb"
    path.write_bytes(data)
    with pytest.raises(opsetta.ModelFileError, match="UTF-8"):
        opsetta.load(path)


def test_nesting_and_empty_messages_are_bounded(tmp_path):
    path = tmp_path / "net.pb"
    net = inner = message_type("NetDef")()
    for _ in range(120):
        operator = inner.op.add(type="If", output=["y"])
        inner = operator.arg.add(name="then_net").n
    inner.op.add(type="Relu")
    path.write_bytes(net.SerializeToString())
    with pytest.raises(opsetta.ModelFileError):
        opsetta.load(path)
    path.write_bytes(b"\x12\x06\x22\x04Relu" * 400_000)
    with pytest.raises(opsetta.ModelFileError, match="trusted"):
        opsetta.load(path)
    path.write_bytes(b"\x12\x06\x22\x04Relu" + b"\x12\x00" * 3_000_000)
    with pytest.raises(opsetta.ModelFileError, match="cannot be read"):
        opsetta.load(path)


def test_random_damage(tmp_path):
    net = Net("small")
    net.fill("w", np.ones((2, 2, 3, 3), np.float32))
    net.add("ConstantFill", [], "b", shape=[2], value=0.5)
    net.add("Conv", ["data", "w", "b"], "y", kernel=3, pad=1, legacy_pad=0, order="NCHW")
    net.add("Softmax", "y", "y", axis=1)
    data = net.finish(["data"], ["y"]).SerializeToString()
    chance, path = random.Random(0), tmp_path / "predict_net.pb"
    ends = {"read": 0, "refused": 0}
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            opsetta.load(path, trusted=False).lower(11)
            ends["read"] += 1
        except opsetta.OpsettaError:
            ends["refused"] += 1
    assert min(ends.values()) > 10


RELU = 'op { type: "Relu" input: "x" output: "y" } external_input: "x"'


@pytest.mark.parametrize("content", [b"", b"\n\x04init", b'name: "init"\n'], ids=["empty", "name", "text"])
def test_an_init_net_may_have_no_operators(content, tmp_path):
    (tmp_path / "init_net.pb").write_bytes(content)
    (tmp_path / "predict_net.pbtxt").write_text(
        'op { type: "Relu" input: "x" output: "y" } external_input: "x"'
    )
    source = opsetta.load(
        tmp_path / "predict_net.pbtxt", init_net=tmp_path / "init_net.pb", shapes={"x": (2,)}
    )
    np.testing.assert_array_equal(source.lower(13)(np.float32([-1, 2])), np.float32([0, 2]))


def test_an_init_net_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "init_net.pb").write_bytes(b"\x7fELF not a net")
    (tmp_path / "predict_net.pbtxt").write_text(
        'op { type: "Relu" input: "x" output: "y" } external_input: "x"'
    )
    with pytest.raises(opsetta.ModelFileError, match="not a Caffe2 net"):
        opsetta.load(tmp_path / "predict_net.pbtxt", init_net=tmp_path / "init_net.pb")

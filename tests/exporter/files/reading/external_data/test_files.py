"""Contents of tensors beside the model: in its folder and nowhere else, and as long as they say."""

import os
import sys

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, parser

import opsetta
from opsetta import ModelFileError
from opsetta.exporter.files.reading import to_ir

WEIGHTS = np.arange(32, dtype=np.float32)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(bytes(128))
    model = tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    for name in ("weights", "inner/weights", "other"):
        (model / name).write_bytes(WEIGHTS.tobytes())
    os.symlink("inner/weights", model / "link")
    os.symlink("../outside/secret", model / "link_out")
    os.symlink(tmp_path / "outside", model / "folder_out")
    os.symlink("nothing", model / "broken")
    os.symlink("loop", model / "loop")
    os.link(model / "other", model / "hard")
    os.mkfifo(model / "pipe")
    return model


def external(location, dims=(2, 2), data_type=TensorProto.FLOAT, **entries):
    tensor = TensorProto(name="w", dims=dims, data_type=data_type, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def model_of(*tensors):
    model = parser.parse_model('<ir_version: 10, opset_import: ["": 18]> g () => (y) { y = Relu(w) }')
    model.graph.initializer.extend(tensors)
    return model


@pytest.mark.parametrize("location", ["weights", "inner/weights", "./weights", "inner//weights", "link"])
def test_what_lies_in_the_folder(folder, location, monkeypatch):
    monkeypatch.chdir(folder.parent)
    model = to_ir(model_of(external(location, offset="16", length="16")), folder.name)
    monkeypatch.chdir("/")
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.raw is None
    np.testing.assert_array_equal(tensor.numpy(), WEIGHTS[4:8].reshape(2, 2))
    assert ir.to_proto(model).graph.initializer[0].external_data[0].value == location


REFUSED = {
    "/etc/hostname": "must be in the model's folder",
    "//server/share": "must be in the model's folder",
    "C:\\weights": "must be in the model's folder",
    "C:weights": "must be in the model's folder",
    "\\weights": "must be in the model's folder",
    "../outside/secret": "must be in the model's folder",
    "inner/../../outside/secret": "must be in the model's folder",
    "inner/../weights": "must be in the model's folder",
    "..\\outside\\secret": "must be in the model's folder",
    "link_out": "a link out of the model's folder",
    "folder_out/secret": "a link out of the model's folder",
    "hard": "hard links",
    "broken": "cannot be read",
    "loop": "cannot be read|link",
    "none": "cannot be read: No such file",
    "weights/x": "cannot be read: Not a directory",
    "a" * 5000: "cannot be read",
    "pipe": "not a regular file",
    "inner": "not a regular file",
    ".": "not a regular file",
    "": "without a location",
    "weights\0": "a NUL in it",
}


def hub_cache(root, named="model.onnx"):
    """The cache of the Hugging Face hub: a folder of links to files that are named by their contents."""
    blobs, snapshot = root / "blobs", root / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "aaa").write_bytes(model_of(external("model.onnx_data")).SerializeToString())
    (blobs / "bbb").write_bytes(WEIGHTS.tobytes())
    os.symlink("../../blobs/aaa", snapshot / named)
    os.symlink("../../blobs/bbb", snapshot / "model.onnx_data")
    return snapshot / named


def weights_of(model):
    return model.model.graph.initializers["w"].const_value.numpy()


def test_a_model_in_the_cache_of_the_hub(tmp_path):
    np.testing.assert_array_equal(weights_of(opsetta.load(hub_cache(tmp_path))), WEIGHTS[:4].reshape(2, 2))


def test_external_data_beside_the_file_that_a_link_leads_to(folder, tmp_path):
    (folder / "model.onnx").write_bytes(model_of(external("inner/weights")).SerializeToString())
    os.symlink(folder / "model.onnx", tmp_path / "link.onnx")
    np.testing.assert_array_equal(weights_of(opsetta.load(tmp_path / "link.onnx")), WEIGHTS[:4].reshape(2, 2))


@pytest.mark.parametrize("location", ["link_out", "folder_out/secret", "hard"])
@pytest.mark.parametrize("through_a_link", [False, True])
def test_links_out_of_the_folder_are_followed_only_where_that_is_allowed(
    folder, location, through_a_link, tmp_path
):
    path = folder / "model.onnx"
    path.write_bytes(model_of(external(location)).SerializeToString())
    if through_a_link:
        (tmp_path / "elsewhere").mkdir()
        os.symlink(path, tmp_path / "elsewhere" / "link.onnx")
        path = tmp_path / "elsewhere" / "link.onnx"
    with pytest.raises(ModelFileError, match=r"opsetta\.load\(path, allow_links=True\)"):
        opsetta.load(path)
    assert weights_of(opsetta.load(path, allow_links=True)).shape == (2, 2)


@pytest.mark.parametrize("location", ["../outside/secret", "/etc/hostname", "pipe", "inner"])
def test_allowed_links_allow_nothing_else(folder, location):
    (folder / "model.onnx").write_bytes(model_of(external(location)).SerializeToString())
    with pytest.raises(ModelFileError):
        opsetta.load(folder / "model.onnx", allow_links=True)


@pytest.mark.parametrize("location", REFUSED)
def test_what_lies_elsewhere_is_refused_and_not_opened(folder, location):
    opened = []
    _watched.append(opened)
    with pytest.raises(ModelFileError, match=REFUSED[location]):
        to_ir(model_of(external(location)), folder)
    _watched.remove(opened)
    assert opened == []


_watched: list[list] = []


def _watch(event, arguments):
    if event == "open":
        for opened in _watched:
            opened.append(arguments[0])


sys.addaudithook(_watch)


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        (
            external("weights", dims=[33]),
            "is 132 bytes at 0 in 'weights', which has 128 bytes: it is truncated",
        ),
        (external("weights", offset="124"), "is 16 bytes at 124 in 'weights', which has 128 bytes"),
        (external("weights", offset="9" * 19), "at 9999999999999999999 in"),
        (external("weights", dims=[2**40]), "is 4398046511104 bytes at 0"),
        (external("weights", length="15"), "is 16 bytes, but its external data has 15"),
        (external("weights", length="9" * 40), "at the length '9{40}'"),
        (external("weights", offset="-1"), "at the offset '-1'"),
        (external("weights", offset=" 1"), "at the offset ' 1'"),
        (external("weights", offset="1_0"), "at the offset '1_0'"),
        (external("weights", offset="\u0661"), "at the offset"),
        (external("weights", compressed="zip"), "the key 'compressed', which ONNX does not define"),
        (external("weights", dims=[3], data_type=TensorProto.STRING), "strings in external data"),
        (external("weights", dims=[-1]), "a negative size"),
    ],
)
def test_contents_that_are_not_there(folder, tensor, match):
    with pytest.raises(ModelFileError, match=match):
        to_ir(model_of(tensor), folder)


def test_entries_that_stand_twice(folder):
    tensor = external("weights")
    tensor.external_data.add(key="location", value="weights")
    assert to_ir(model_of(tensor), folder).graph.initializers["w"].const_value.numpy()[1, 1] == 3
    tensor.external_data.add(key="location", value="inner/weights")
    with pytest.raises(ModelFileError, match="external data with two values of 'location'"):
        to_ir(model_of(tensor), folder)


def test_contents_in_both_places(folder):
    tensor = external("weights")
    tensor.raw_data = bytes(16)
    with pytest.raises(ModelFileError, match="contents in the model and in external data"):
        to_ir(model_of(tensor), folder)
    tensor.ClearField("data_location")
    with pytest.raises(ModelFileError, match="has external data, but its data location says otherwise"):
        to_ir(model_of(tensor), folder)


def test_one_range_of_several_tensors(folder):
    first, second = external("weights", offset="0"), external("weights", offset="0")
    second.name = "v"
    model = to_ir(model_of(first, second), folder)
    np.testing.assert_array_equal(*(v.const_value.numpy() for v in model.graph.initializers.values()))


def test_no_elements_need_no_file(folder):
    model = to_ir(model_of(external("none", dims=[0, 3])), folder)
    assert model.graph.initializers["w"].const_value.numpy().shape == (0, 3)
    assert model.graph.initializers["w"].const_value.tobytes() == b""
    with pytest.raises(ModelFileError, match="must be in the model's folder"):
        to_ir(model_of(external("../none", dims=[0])), folder)


def test_hints_are_left_out_with_a_warning(folder):
    tensor = external("weights", checksum="abc", basepath="/tmp", prepacked_1="x")
    with pytest.warns(
        UserWarning, match="without parts that have no effect: the checksum of external data: initializer 'w'"
    ):
        model = to_ir(model_of(tensor), folder)
    assert len(model.meta["left_out"]) == 3


def test_every_tensor_knows_the_folder(folder):
    """In attributes, in graphs within graphs, in functions, and in the defaults of their attributes."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18, "m": 1]> g (bool c) => (y) {'
        " a = Constant <value = float {1}> () b = m.F ()"
        " y = If (c) <then_branch = t () => (r) { r = Constant <value = float {1}> () },"
        " else_branch = e () => (s) <float[2, 2] w = {1, 2, 3, 4}> { s = Relu (w) }> }"
        '<domain: "m", opset_import: ["": 18]> F () => (r) { r = Constant <value = float {1}> () }'
    )
    nodes = model.graph.node
    default = model.functions[0].attribute_proto.add(name="d", type="TENSOR")
    held = [
        *(nodes[0].attribute[0].t, nodes[2].attribute[0].g.node[0].attribute[0].t),
        *(nodes[2].attribute[1].g.initializer[0], model.functions[0].node[0].attribute[0].t, default.t),
    ]
    for tensor in held:
        tensor.CopyFrom(external("weights"))
    read = to_ir(model, folder)
    function = next(iter(read.functions.values()))
    found = [function.attributes["d"].value]
    for graph in (read.graph, function):
        for node in graph.all_nodes():
            if "value" in node.attributes:
                found.append(node.attributes["value"].value)
        for inner in graph.subgraphs():
            found += [value.const_value for value in inner.initializers.values()]
    found = list({id(tensor): tensor for tensor in found}.values())
    assert len(found) == 5
    for tensor in found:
        assert tensor.base_dir == str(folder)
        np.testing.assert_array_equal(tensor.numpy(), WEIGHTS[:4].reshape(2, 2))
    for tensor in held:
        tensor.CopyFrom(external("link_out"))
        with pytest.raises(ModelFileError, match="link out"):
            to_ir(model, folder)
        tensor.CopyFrom(external("weights"))


def test_a_link_made_later_is_not_followed(folder):
    model = to_ir(model_of(external("weights")), folder)
    (folder / "weights").unlink()
    os.symlink("../outside/secret", folder / "weights")
    with pytest.raises(ValueError, match="outside the base directory"):
        model.graph.initializers["w"].const_value.numpy()


def test_a_model_next_to_a_link_to_its_folder(folder, tmp_path):
    os.symlink(folder, tmp_path / "same")
    model = to_ir(model_of(external("weights")), tmp_path / "same")
    assert model.graph.initializers["w"].const_value.numpy()[0, 1] == 1

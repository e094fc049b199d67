"""`load` of graphs with variables: the checkpoint has their values, and the results equal TensorFlow's."""

import pathlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow import tensorflow_capture
from opsetta.exporter.capture.tensorflow.graph import scope
from opsetta.exporter.capture.tensorflow.messages import message_type
from tests import tensorflow_checkpoints as files
from tests.exporter.capture.tensorflow.graphs import FLOAT, INT32, Graph

RESOURCE = "DT_RESOURCE"
DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "tensorflow"
GRAPHS = sorted(path.parent.name for path in (DATA / "freezing").glob("*/graph.pb"))


def check(source: opsetta.SourceModel, example: pathlib.Path, opset: int) -> None:
    """Compare the results with TensorFlow's, by name."""
    with np.load(example) as file:
        found = {key.removesuffix(":0"): file[key] for key in file}
    inputs = {key[3:]: found[key] for key in found if key.startswith("in:")}
    outputs = {key[4:]: found[key] for key in found if key.startswith("out:")}
    program = source.lower(opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    results = program(**inputs)
    results = results if isinstance(results, tuple) else (results,)
    assert sorted(program.output_names) == sorted(outputs)
    for name, result in zip(program.output_names, results, strict=True):
        np.testing.assert_allclose(result, outputs[name], rtol=1e-5, atol=1e-5)


def outputs_of(example: pathlib.Path) -> list[str]:
    with np.load(example) as file:
        return [key[4:] for key in file if key.startswith("out:")]


@pytest.mark.parametrize("opset", [9, 24])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_checkpoint(name, opset):
    folder = DATA / "freezing" / name
    prefix = next(folder.glob("*.index")).with_suffix("")
    outputs = outputs_of(folder / "io.npz")
    source = opsetta.load(folder / "graph.pb", checkpoint=prefix, outputs=outputs)
    check(source, folder / "io.npz", opset)


def test_a_meta_graph_finds_the_checkpoint_beside_it():
    folder = DATA / "freezing" / "adam"
    source = opsetta.load(folder / "model.ckpt-5.meta", outputs=outputs_of(folder / "io.npz"))
    check(source, folder / "io.npz", 13)


def test_a_saved_model_has_signatures_and_variables():
    folder = DATA / "freezing" / "saved_model"
    check(opsetta.load(folder), folder / "io.npz", 13)


@pytest.mark.parametrize("read_at_once", [0, 2**20])
def test_weights_stay_in_the_checkpoint(read_at_once, monkeypatch):
    monkeypatch.setattr(scope, "_READ_AT_ONCE", read_at_once)
    monkeypatch.setattr(tensorflow_capture, "_WRITTEN_INTO_GRAPH", 0)
    folder = DATA / "freezing" / "saved_model"
    capture = tensorflow_capture.capture_file(folder).capture
    tensors = [value.const_value for value in capture.source.graph.initializers.values()]
    assert any(isinstance(tensor, ir.LazyTensor) for tensor in tensors) == (read_at_once == 0)
    check(opsetta.load(folder), folder / "io.npz", 13)


def test_inputs_and_outputs_have_the_names_of_the_signature():
    folder = DATA / "saved_models" / "objects"
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    program = opsetta.load(folder).lower(13)
    assert (program.input_names, program.output_names) == (["x"], ["largest", "scaled"])
    largest, scaled = program(x)
    assert largest == 6
    np.testing.assert_array_equal(scaled, x * np.float32([1, 2, 3]))
    shifted = opsetta.load(folder, signature="shifted").lower(13)
    np.testing.assert_array_equal(shifted(shift=x[0]), np.float32([2, 4, 6]))
    with pytest.raises(opsetta.ModelFileError, match="it has no signature 'nothing'"):
        opsetta.load(folder, signature="nothing")


def test_a_graph_is_chosen_by_its_tags():
    folder = DATA / "saved_models" / "tagged"
    with pytest.raises(opsetta.ModelFileError, match="it has no signature 'serving_default'"):
        opsetta.load(folder)
    for tags, signature, factor in ((["serve"], "doubled", 2), (["train"], "predict", 1)):
        program = opsetta.load(folder, tags=tags, signature=signature).lower(13)
        assert (program.input_names, program.output_names) == (["left"], ["product"])
        found = program(np.float32([[1, 1]]))
        np.testing.assert_array_equal(found, np.float32([[4, 6]]) * factor)


def test_variables_without_a_checkpoint_are_named():
    folder = DATA / "freezing" / "average"
    with pytest.raises(opsetta.CaptureError, match="depend on variables.*give the checkpoint"):
        opsetta.load(folder / "graph.pb", outputs=outputs_of(folder / "io.npz"))


def load(graph: Graph, folder: pathlib.Path, **options) -> opsetta.SourceModel:
    path = folder / "graph.pb"
    path.write_bytes(graph.message.SerializeToString())
    return opsetta.load(path, **options)


def test_an_input_that_the_outputs_do_not_need_stays(tmp_path):
    """Freezing removes its node; a second result of a node has a placeholder of its own."""
    folder = DATA / "freezing" / "adam"
    graph = Graph()
    graph.message.CopyFrom(message_type("GraphDef").FromString((folder / "graph.pb").read_bytes()))
    path = tmp_path / "graph.pb"
    graph.add("Split", "halves", ["prob", "prob"], num_split=2, T=FLOAT)
    graph.placeholder("unused", [3])
    path.write_bytes(graph.message.SerializeToString())
    inputs = {"x": None, "halves:1": (2, 2), "unused": None}
    source = opsetta.load(path, checkpoint=folder / "model.ckpt-5", inputs=inputs, outputs=["prob"])
    assert source.lower(13).input_names == ["x", "halves:1", "unused"]


@pytest.fixture
def counting(tmp_path):
    """A function that counts its calls in the variable `h`, and adds the weight `w` to its argument."""
    graph = Graph()
    graph.placeholder("x", [2])
    graph.add("VarHandleOp", "h", dtype=FLOAT, shape=[], shared_name="h")
    graph.add("VarHandleOp", "w", dtype=FLOAT, shape=[2], shared_name="w")
    function = graph.function(
        "f", [("a", FLOAT), ("h", RESOURCE), ("w", RESOURCE)], [("result", FLOAT, "y:output:0")]
    )
    function.constant("one", 1.0)
    function.add("AssignAddVariableOp", "count", ["h", "one:output:0"], dtype=FLOAT)
    function.add("ReadVariableOp", "read", ["w"], dtype=FLOAT)
    function.call("AddV2", "sum", ["a", "read:value:0"])
    types = {"Tin": [FLOAT, RESOURCE, RESOURCE], "Tout": [FLOAT]}
    graph.add("StatefulPartitionedCall", "y", ["x", "h", "w"], f="f", **types)
    files.write_bundle(tmp_path / "c", {"h": np.float32(3).reshape(()), "w": np.float32([5, 6])})
    return graph, function


def test_a_function_may_count_its_calls(counting, tmp_path):
    graph, function = counting
    function.call("Identity", "y", ["sum:z:0", "^count"])
    program = load(graph, tmp_path, checkpoint=tmp_path / "c").lower(13)
    np.testing.assert_array_equal(program(np.float32([1, 2])), np.float32([6, 8]))


def test_a_function_that_reads_its_counter_is_refused(counting, tmp_path):
    graph, function = counting
    function.add("ReadVariableOp", "counter", ["h", "^count"], dtype=FLOAT)
    function.call("AddV2", "total", ["sum:z:0", "counter:value:0"])
    function.call("Identity", "y", ["total:z:0"])
    with pytest.raises(opsetta.CaptureError, match="reads the variable 'h' after the graph has changed it"):
        load(graph, tmp_path, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("reader", ["function", "gather", "shape"])
def test_a_constant_that_is_read_as_a_handle_is_its_value(reader, tmp_path):
    """Older tools replace the variables of a graph, and leave what reads their handles."""
    graph = Graph()
    graph.placeholder("x", [2])
    weights = np.float32([1, 2])
    graph.constant("w", weights)
    if reader == "function":
        function = graph.function("f", [("a", FLOAT), ("h", RESOURCE)], [("result", FLOAT, "sum:z:0")])
        function.add("ReadVariableOp", "read", ["h"], dtype=FLOAT)
        function.call("AddV2", "sum", ["a", "read:value:0"])
        graph.add("PartitionedCall", "y", ["x", "w"], Tin=[FLOAT, RESOURCE], Tout=[FLOAT], f="f")
    elif reader == "gather":
        graph.constant("i", np.int32([0, 1]))
        graph.add("ResourceGather", "g", ["w", "i"], dtype=FLOAT, Tindices=INT32)
        graph.call("AddV2", "y", ["x", "g"])
    else:
        graph.add("VariableShape", "s", ["w"], out_type=INT32)
        graph.add("BroadcastTo", "b", ["w", "s"], T=FLOAT, Tidx=INT32)
        graph.call("AddV2", "y", ["x", "b"])
    program = load(graph, tmp_path).lower(13)
    np.testing.assert_array_equal(program(weights), weights * 2)


@pytest.mark.parametrize("opset", [8, 13])
@pytest.mark.parametrize("with_variable", [False, True])
def test_an_input_with_a_default_may_be_left_out(with_variable, opset, tmp_path):
    graph = Graph()
    graph.placeholder("x", [2])
    graph.constant("one", np.float32([1, 1]))
    graph.add("PlaceholderWithDefault", "shift", ["one"], dtype=FLOAT, shape=[-1])
    graph.call("Add", "y", ["x", "shift"])
    outputs, options = ["y"], {}
    x = total = np.float32([3, 4])
    if with_variable:
        graph.add("VarHandleOp", "v", dtype=FLOAT, shape=[2], shared_name="v")
        graph.add("ReadVariableOp", "read", ["v"], dtype=FLOAT)
        graph.call("Add", "z", ["y", "read"])
        files.write_bundle(tmp_path / "c", {"v": np.float32([10, 20])})
        outputs, options, total = ["z"], {"checkpoint": tmp_path / "c"}, x + np.float32([10, 20])
    program = load(graph, tmp_path, outputs=outputs, inputs=["x", "shift"], **options).lower(opset)
    assert program.input_names == ["x", "shift"]
    # Before opset 9 (IR version 4) an initializer cannot be replaced, so the input must be passed.
    shift = {"shift": np.float32([5, 6])}
    np.testing.assert_array_equal(program(x=x, **shift), total + shift["shift"])
    if opset > 8:
        np.testing.assert_array_equal(program(x), total + 1)
    onnx.checker.check_model(program.model_proto, full_check=True)
    # A source file keeps the default.
    source = load(graph, tmp_path, outputs=outputs, inputs=["x", "shift"], **options)
    source.save_source(tmp_path / "source.onnx")
    np.testing.assert_array_equal(opsetta.load(tmp_path / "source.onnx").lower(13)(x), total + 1)
    # An input that the caller does not name is its default.
    program = load(graph, tmp_path, outputs=outputs, inputs=["x"], **options).lower(opset)
    assert program.input_names == ["x"]
    np.testing.assert_array_equal(program(x), total + 1)

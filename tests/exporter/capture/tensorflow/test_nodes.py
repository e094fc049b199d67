"""Nodes of a GraphDef as source nodes: names, inputs, attributes, what is captured and what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph
from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.registration.arguments import arguments

from .graphs import BOOL, FLOAT, INT32, Graph, set_attribute


def source_nodes(graph: Graph, outputs: Sequence[str] | None = None, **options: Any) -> dict[str, ir.Node]:
    """The source nodes of a graph by name."""
    capture = capture_graph(graph.message, outputs=outputs, **options)
    return {node.name: node for node in capture.source.graph}


def test_a_node_has_its_name_its_arguments_and_its_results():
    graph = Graph()
    x = graph.placeholder("x", [-1, 3])
    graph.constant("axis", 1)
    graph.add("Split", "parts", ["axis", x], num_split=3, T=FLOAT)
    graph.add("ConcatV2", "joined", ["parts:2", "parts", "axis:0"], N=2, T=FLOAT, Tidx=INT32)
    nodes = source_nodes(graph)
    split, joined = nodes["parts"], nodes["joined"]
    assert (split.domain, split.op_type) == ("tf", "Split")
    assert [value.name for value in split.outputs] == ["parts", "parts:1", "parts:2"]
    assert {value.dtype for value in split.outputs} == {ir.DataType.FLOAT}
    given = arguments(joined)
    assert list(given) == ["values", "axis", "N", "T", "Tidx"]
    assert given["values"] == [split.outputs[2], split.outputs[0]]
    assert (given["N"], given["Tidx"]) == (2, ir.DataType.INT32)
    assert given["axis"].const_value.numpy() == 1


def test_a_device_is_metadata_and_nothing_else():
    captures = []
    for device in ("", "/device:GPU:0"):
        graph = Graph()
        graph.call("Relu", "y", [graph.placeholder("x", [2])], device=device)
        captures.append(capture_graph(graph.message))
    plain, placed = (next(iter(capture.source.graph)) for capture in captures)
    assert "device" not in plain.metadata_props
    assert placed.metadata_props["device"] == "/device:GPU:0"
    assert arguments(plain).keys() == arguments(placed).keys()


def test_every_kind_of_attribute_is_an_argument():
    graph = Graph()
    x = graph.placeholder("x", [2])
    node = graph.message.node.add(name="y", op="MyOperator", input=[x])
    given = {
        "s": ("string", "text", "text"),
        "latin": ("string", b"\xe9", "é"),
        "i": ("int", -3, -3),
        "f": ("float", 0.5, 0.5),
        "b": ("bool", True, True),
        "type": ("type", INT32, ir.DataType.INT32),
        "reference": ("type", "DT_FLOAT_REF", ir.DataType.FLOAT),
        "variant": ("type", "DT_VARIANT", "variant"),
        "shape": ("shape", [2, -1], [2, -1]),
        "any_rank": ("shape", None, None),
        "func": ("func", "a_function", "a_function"),
        "list_s": ("list(string)", ["a", "b"], ["a", "b"]),
        "list_i": ("list(int)", [1, 2], [1, 2]),
        "list_f": ("list(float)", [0.5], [0.5]),
        "list_b": ("list(bool)", [True, False], [True, False]),
        "list_type": ("list(type)", [BOOL, "DT_RESOURCE"], [ir.DataType.BOOL, "resource"]),
        "list_shape": ("list(shape)", [[1], None], [[1], None]),
        "list_func": ("list(func)", ["f", "g"], ["f", "g"]),
        "empty": ("list(int)", [], []),
    }
    for name, (kind, value, _) in given.items():
        set_attribute(node.attr[name], kind, value)
    set_attribute(node.attr["tensor"], "tensor", np.float32([1, 2]))
    set_attribute(node.attr["_class"], "list(string)", ["loc:@x"])
    found = arguments(source_nodes(graph)["y"])
    assert {name: found[name] for name in given} == {name: due for name, (*_, due) in given.items()}
    assert found["tensor"].const_value.numpy().tolist() == [1, 2]
    assert found["tensor"].name == "y/tensor"
    assert "_class" not in found
    assert [value.name for value in found["inputs"]] == ["x"]


def test_an_absent_attribute_has_the_default_of_its_operator():
    graph = Graph()
    x, kernel = (
        graph.placeholder("x", [1, 4, 4, 2]),
        graph.constant("kernel", np.ones((1, 1, 2, 3), np.float32)),
    )
    graph.call("Conv2D", "y", [x, kernel], strides=[1, 1, 1, 1], padding="SAME")
    found = arguments(source_nodes(graph)["y"])
    assert found["dilations"] == [1, 1, 1, 1]
    assert (found["data_format"], found["explicit_paddings"]) == ("NHWC", [])


@pytest.mark.parametrize("missing", ["strides", "T"])
def test_an_absent_attribute_without_a_default_is_named(missing):
    graph = Graph()
    x, kernel = (
        graph.placeholder("x", [1, 4, 4, 2]),
        graph.constant("kernel", np.ones((1, 1, 2, 3), np.float32)),
    )
    graph.call("Conv2D", "y", [x, kernel], strides=[1, 1, 1, 1], padding="SAME")
    del graph.message.node[-1].attr[missing]
    with pytest.raises(opsetta.ModelFileError, match=rf"node 'y' \(Conv2D\) lacks attribute '{missing}'"):
        capture_graph(graph.message)


def test_an_attribute_of_another_kind_is_refused():
    graph = Graph()
    graph.call("LeakyRelu", "y", [graph.placeholder("x", [2])], alpha=0.5)
    set_attribute(graph.message.node[-1].attr["alpha"], "string", "0.5")
    with pytest.raises(
        opsetta.ModelFileError, match="attribute 'alpha' of node 'y' .* is a value of the kind 's'"
    ):
        capture_graph(graph.message)


def test_constants_are_initializers_under_their_names():
    graph = Graph()
    weight = graph.constant("layer/kernel", np.arange(6, dtype=np.float32).reshape(2, 3))
    axes, text = graph.constant("axes", [0]), graph.constant("text", np.array(["a", "b"]))
    graph.add("MyOperator", "y", [weight, axes, text])
    found = capture_graph(graph.message).source.graph.initializers
    assert list(found) == ["layer/kernel", "axes", "text"]
    assert found["layer/kernel"].const_value.numpy().shape == (2, 3)
    assert found["text"].dtype == ir.DataType.STRING
    kinds = {name: value.metadata_props["opsetta.kind"] for name, value in found.items()}
    assert kinds == {"layer/kernel": "parameter", "axes": "constant", "text": "constant"}


def test_a_constant_whose_type_differs_from_its_contents_is_refused():
    graph = Graph()
    graph.call("Relu", "y", [graph.constant("c", [1.0, 2.0])])
    graph.message.node[0].attr["dtype"].type = 3
    with pytest.raises(
        opsetta.ModelFileError, match=r"node 'c' .* is INT32 by its 'dtype', but contains FLOAT"
    ):
        capture_graph(graph.message)


def test_placeholders_are_the_inputs_and_what_nothing_reads_are_the_outputs():
    graph = Graph()
    graph.placeholder("unused", [1])
    x = graph.placeholder("x", [-1, 3])
    y = graph.add("PlaceholderWithDefault", "y", [graph.constant("default", [1.0])], dtype=FLOAT, shape=[1])
    graph.call("AddV2", "sum", [x, y])
    graph.add("NoOp", "init", ["^sum"])
    graph.add("Unpack", "parts", [x], num=2, axis=0, T=FLOAT)
    graph.add("ScalarSummary", "summary", [graph.constant("tag", "t"), "parts"], T=FLOAT)
    graph.call("Relu", "last", ["sum", "^init"])
    capture = capture_graph(graph.message)
    assert [value.name for value in capture.source.graph.inputs] == ["x"]
    assert capture.output_names == ["last"]
    [value] = capture.source.graph.inputs
    assert (value.dtype, str(value.shape)) == (ir.DataType.FLOAT, "[x_0,3]")


def test_an_optional_placeholder_that_is_named_is_an_input():
    graph = Graph()
    y = graph.add("PlaceholderWithDefault", "y", [graph.constant("default", [1.0])], dtype=FLOAT, shape=[-1])
    graph.call("Relu", "last", [y])
    assert [v.name for v in capture_graph(graph.message, inputs=["y:0"]).source.graph.inputs] == ["y"]
    [node] = capture_graph(graph.message).source.graph
    assert arguments(node)["features"].name == "default"


def test_a_placeholder_of_an_old_graph_without_dimensions_has_any_rank():
    for producer, rank in ((21, None), (22, 0)):
        graph = Graph()
        graph.message.versions.producer = producer
        graph.call("Relu", "y", [graph.placeholder("x", [])])
        [value] = capture_graph(graph.message).source.graph.inputs
        assert (None if value.shape is None else len(value.shape)) == rank


def chain() -> Graph:
    graph = Graph()
    x = graph.placeholder("x", [2, 3])
    a = graph.call("Relu", "a", [x])
    graph.add("Unpack", "b", [a], num=2, axis=0, T=FLOAT)
    graph.call("Tanh", "c", ["b:1"])
    graph.call("Sigmoid", "d", ["c"])
    return graph


def test_inputs_and_outputs_may_be_any_results():
    capture = capture_graph(chain().message, inputs={"b:1": [-1]}, outputs=["c:0", "b:1"])
    assert [node.name for node in capture.source.graph] == ["c"]
    [value] = capture.source.graph.inputs
    assert (value.name, value.dtype, str(value.shape)) == ("b:1", ir.DataType.FLOAT, "[b_1_0]")
    assert capture.output_names == ["c", "b:1"]


def test_what_the_outputs_do_not_reach_is_not_captured():
    graph = chain()
    graph.add("MyOperator", "broken", ["a", "d"])
    assert [n.name for n in capture_graph(graph.message, outputs=["a"]).source.graph] == ["a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": ["nothing"]}, "outputs: the graph has no node 'nothing'"),
        ({"outputs": ["bb"]}, "outputs: the graph has no node 'bb'; there are 'b'"),
        ({"outputs": ["b:2"]}, r"reads result 2 of node 'b' \(Unpack\), which has 2"),
        ({"outputs": ["b:x"]}, "the graph has no node 'b:x'"),
        ({"inputs": ["b"], "outputs": ["d"]}, "the outputs depend on placeholder 'x'"),
        ({"inputs": ["c", "c:0"]}, "inputs: 'c:0' occurs twice"),
        ({"inputs": [3]}, "inputs must be names of results"),
        ({"inputs_as_nchw": ["x"]}, "inputs_as_nchw: 'x' must have 4 dimensions, not 2"),
        ({"inputs_as_nchw": ["c"]}, "inputs_as_nchw: 'c' is not among the inputs, which are 'x'"),
    ],
)
def test_wrong_inputs_and_outputs_are_named(options, message):
    with pytest.raises(opsetta.OpsettaError, match=message):
        capture_graph(chain().message, **options)


def test_names_are_unique():
    graph = chain()
    graph.call("Relu", "a", ["x"])
    with pytest.raises(opsetta.ModelFileError, match="two nodes of the graph have the name 'a'"):
        capture_graph(graph.message)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("lost", r"node 'e' \(Relu\) reads 'lost', which does not exist"),
        ("^lost", "reads 'lost', which does not exist"),
        ("b:2", r"a node reads result 2 of node 'b' \(Unpack\)"),
        ("b:output:0", "has the input 'b:output:0', which names no result"),
        ("b:1:1", "has the input 'b:1:1', which names no result"),
        ("b:-1", "has the input 'b:-1', which names no result"),
        ("b:99999999999999999999", "names no result"),
    ],
)
def test_inputs_without_a_source_are_refused(reference, message):
    graph = chain()
    graph.call("Relu", "e", [reference] if not reference.startswith("^") else ["a", reference])
    with pytest.raises(opsetta.ModelFileError, match=message):
        capture_graph(graph.message)


def test_a_data_input_after_a_control_input_is_refused():
    graph = chain()
    graph.call("Relu", "e", ["^a", "b"])
    with pytest.raises(opsetta.ModelFileError, match="has the input 'b' after its control inputs"):
        capture_graph(graph.message)


@pytest.mark.parametrize("inputs", [[], ["a", "c"]])
def test_a_wrong_number_of_inputs_is_refused(inputs):
    graph = chain()
    graph.call("Relu", "e", inputs)
    with pytest.raises(
        opsetta.ModelFileError, match=rf"node 'e' \(Relu\) has {len(inputs)} inputs instead of 1"
    ):
        capture_graph(graph.message, outputs=["e"])


def test_a_circle_is_refused():
    graph = Graph()
    x = graph.placeholder("x", [2])
    graph.call("AddV2", "a", [x, "c"])
    graph.call("Relu", "b", ["a"])
    graph.call("Relu", "c", ["b"])
    graph.call("Relu", "d", ["c"])
    with pytest.raises(opsetta.ModelFileError, match="depend on each other in a circle: 'a', 'b', 'c'"):
        capture_graph(graph.message, outputs=["d"])


def test_a_long_chain_does_not_recurse():
    graph = Graph()
    name = graph.placeholder("x", [2])
    for index in range(5000):
        name = graph.call("Relu", f"n{index}", [name])
    graph.message.node.sort(key=lambda node: node.name)
    assert capture_graph(graph.message).source.graph.num_nodes() == 5000


def test_variables_ask_for_a_checkpoint():
    graph = Graph()
    graph.add("VariableV2", "w", shape=[2], dtype=FLOAT)
    graph.call("Relu", "y", ["w"])
    with pytest.raises(opsetta.CaptureError, match=r"depend on variables.*\('w'\): give the checkpoint"):
        capture_graph(graph.message)


def test_a_constant_that_other_nodes_only_wait_for_is_the_output():
    graph = Graph()
    graph.constant("weights", np.float32([[1, 2]]))
    graph.add("NoOp", "done", ["^weights"])
    assert capture_graph(graph.message).output_names == ["weights"]


def test_a_constant_that_is_named_as_an_input_has_its_shape():
    graph = Graph()
    graph.constant("weights", np.ones((2, 3), np.float32))
    graph.call("Relu", "y", ["weights"])
    [value] = capture_graph(graph.message, inputs=["weights"]).source.graph.inputs
    assert value.shape == [2, 3]


def test_an_empty_graph_has_no_outputs():
    with pytest.raises(opsetta.CaptureError, match="name the outputs"):
        capture_graph(message_type("GraphDef")())


def test_all_operators_without_a_symbolic_function_are_named_at_once():
    graph = Graph()
    x = graph.placeholder("x", [2])
    graph.add("FirstOperator", "scope/a", [x], size=3)
    graph.add("SecondOperator", "b", ["scope/a:1"])
    graph.call("Neg", "y", ["b"])
    source = opsetta.SourceModel(capture_graph(graph.message))
    with pytest.raises(opsetta.UnsupportedOperatorsError) as error:
        source.lower(13)
    assert [(each.name, each.modules) for each in error.value.operators] == [
        ("tf::FirstOperator", ("scope/a",)),
        ("tf::SecondOperator", ("b",)),
    ]
    assert "make them inputs: `--inputs NODE:0`" in str(error.value)


def test_a_registered_function_serves_an_operator_that_is_not_tensorflow_s_own():
    registry = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic("tf::MyOperator", registry=registry)
    def my_operator(g: opsetta.GraphContext, inputs: list[opsetta.Value], factor: float):
        return g.op("Mul", inputs[0], factor)

    graph = Graph()
    graph.add("MyOperator", "y", [graph.placeholder("x", [2])], factor=2.5)
    program = opsetta.SourceModel(capture_graph(graph.message)).lower(13, registry=registry)
    np.testing.assert_array_equal(program(np.float32([1, 2])), np.float32([2.5, 5]))


def test_channels_may_come_first_at_inputs_and_outputs():
    graph = Graph()
    x = graph.placeholder("x", [2, 3, 4, 5])
    graph.call("Neg", "y", [x])
    capture = capture_graph(graph.message, inputs_as_nchw=["x"], outputs_as_nchw=["y:0"])
    [value] = capture.source.graph.inputs
    assert list(value.shape) == [2, 5, 3, 4]
    assert [n.op_type for n in capture.source.graph] == ["Transpose", "Neg", "Transpose"]
    assert [list(arguments(n)["perm"].const_value.numpy()) for n in [*capture.source.graph][::2]] == [
        [0, 2, 3, 1],
        [0, 3, 1, 2],
    ]
    assert capture.output_names == ["y"]


def test_errors_name_the_options_of_tensorflow_files(tmp_path):
    graph = Graph()
    graph.call("BiasAdd", "biased", [graph.placeholder("x"), graph.constant("b", [1.0])], data_format="NCHW")
    graph.add("MyOperator", "y", ["biased"])
    (tmp_path / "graph.pb").write_bytes(graph.message.SerializeToString())
    with pytest.raises(
        opsetta.UnsupportedOperatorsError, match=r"give .* `--inputs x\[1,224,224,3\]`"
    ) as error:
        opsetta.load(tmp_path / "graph.pb").lower(13)
    assert "torch" not in str(error.value)
    assert "dynamic_shapes" not in str(error.value)


def test_the_results_of_a_data_set_and_a_queue_are_inputs(tmp_path):
    graph = Graph()
    graph.add("OneShotIterator", "iterator")
    types, shapes = [FLOAT, "DT_INT64"], [[-1, 3], [-1]]
    node = graph.message.node.add(name="next", op="IteratorGetNext", input=["iterator"])
    set_attribute(node.attr["output_types"], "list(type)", types)
    set_attribute(node.attr["output_shapes"], "list(shape)", shapes)
    queue = graph.message.node.add(name="queue", op="FIFOQueueV2")
    set_attribute(queue.attr["component_types"], "list(type)", [INT32, FLOAT])
    set_attribute(queue.attr["shapes"], "list(shape)", [[], [3]])
    graph.constant("count", 2)
    batch = graph.message.node.add(name="batch", op="QueueDequeueManyV2", input=["queue", "count"])
    set_attribute(batch.attr["component_types"], "list(type)", [INT32, FLOAT])
    graph.call("Mul", "scaled", ["next:0", "batch:1"])
    graph.add("Cast", "shift", ["next:1"], SrcT="DT_INT64", DstT=FLOAT)
    graph.add("ExpandDims", "column", ["shift", graph.constant("axis", 1)], T=FLOAT, Tdim=INT32)
    graph.call("AddV2", "y", ["scaled", "column"])
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.message.SerializeToString())
    program = opsetta.load(path).lower(13)
    assert program.input_names == ["next", "next_1", "batch_1"]
    x, labels, factors = np.float32([[1, 2, 3]]), np.array([5]), np.float32([[2, 2, 2]])
    np.testing.assert_array_equal(program(x, labels, factors), [[7, 9, 11]])

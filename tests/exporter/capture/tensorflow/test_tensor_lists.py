"""TensorLists and TensorArrays outside of loops and in them, at opsets with and without ScatterND."""

import numpy as np
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph

from .graphs import FLOAT, INT32, VARIANT, Graph

X = np.arange(12, dtype=np.float32).reshape(4, 3)
OPSETS = pytest.mark.parametrize("opset", [7, 9, 11, 24])


class Lists(Graph):
    """A graph with an input `x`, [?, 3], and operators on lists of float rows."""

    def __init__(self) -> None:
        super().__init__()
        self.placeholder("x", [-1, 3])
        self.constant("any", -1)
        self.constant("row", [3])

    def on_list(self, op: str, name: str, inputs: list[str], **attributes: object) -> str:
        return self.add(op, name, inputs, element_dtype=FLOAT, **attributes)

    def results(self, opset: int, *outputs: str, x: np.ndarray = X) -> list[np.ndarray]:
        program = opsetta.SourceModel(capture_graph(self.message, outputs=outputs)).lower(opset)
        found = program(x)
        return list(found) if isinstance(found, tuple) else [found]


@OPSETS
def test_items_of_a_list_from_a_tensor(opset):
    graph = Lists()
    graph.on_list("TensorListFromTensor", "list", ["x", "row"], shape_type=INT32)
    graph.on_list("TensorListGetItem", "item", ["list", graph.constant("i", 2), "row"])
    graph.on_list("TensorListSetItem", "set", ["list", graph.constant("j", 1), "item"])
    graph.on_list("TensorListStack", "stack", ["set", "row"], num_elements=-1)
    graph.on_list("TensorListGather", "gathered", ["set", graph.constant("places", [3, 1]), "row"])
    graph.add("TensorListLength", "length", ["set"])
    graph.add("TensorListElementShape", "shape", ["set"], shape_type=INT32)
    expected = X.copy()
    expected[1] = X[2]
    found = graph.results(opset, "item", "stack", "gathered", "length", "shape")
    for result, due in zip(
        found, [X[2], expected, expected[[3, 1]], np.int32(4), np.int32([3])], strict=True
    ):
        np.testing.assert_array_equal(result, due)
        assert result.dtype == due.dtype


@OPSETS
def test_a_list_grows_and_shrinks(opset):
    graph = Lists()
    graph.on_list("EmptyTensorList", "empty", ["any", "any"], shape_type=INT32)
    graph.add("Neg", "negated", ["x"], T=FLOAT)
    graph.on_list("TensorListPushBack", "one", ["empty", "x"])
    graph.on_list("TensorListPushBack", "two", ["one", "negated"])
    graph.on_list("TensorListPopBack", "less", ["two", "any"])
    graph.add("TensorListResize", "longer", ["less", graph.constant("three", 3)])
    graph.on_list("TensorListConcatLists", "both", ["two", "one"])
    for name, source in (("all", "two"), ("rest", "less"), ("padded", "longer"), ("joined", "both")):
        graph.on_list("TensorListStack", name, [source, "any"])
    last, *stacks = graph.results(opset, "less:1", "all", "rest", "padded", "joined")
    np.testing.assert_array_equal(last, -X)
    for stack, due in zip(stacks, ([X, -X], [X], [X, 0 * X, 0 * X], [X, -X, X]), strict=True):
        np.testing.assert_array_equal(stack, np.stack(due))


@OPSETS
def test_lists_are_scattered_split_and_joined(opset):
    graph = Lists()
    places = graph.constant("places", [3, 0, 1, 5])
    count = graph.constant("count", 7)
    graph.on_list("TensorListScatterV2", "sized", ["x", places, "row", count], shape_type=INT32)
    graph.on_list("TensorListScatter", "fitted", ["x", places, "row"], shape_type=INT32)
    graph.on_list(
        "TensorListScatterIntoExistingList", "again", ["sized", "x", graph.constant("other", [0, 1, 2, 3])]
    )
    graph.on_list(
        "TensorListSplit",
        "split",
        ["x", "row", graph.constant("lengths", np.array([2, 2]))],
        shape_type=INT32,
    )
    graph.on_list(
        "TensorListConcatV2",
        "joined",
        ["split", "row", graph.constant("none", np.zeros(0, np.int64))],
        shape_type=INT32,
    )
    for name in ("sized", "fitted", "again", "split"):
        graph.on_list("TensorListStack", f"{name}_stack", [name, "any"])
    sized = np.zeros((7, 3), np.float32)
    sized[[3, 0, 1, 5]] = X
    again = sized.copy()
    again[:4] = X
    found = graph.results(
        opset, "sized_stack", "fitted_stack", "again_stack", "split_stack", "joined", "joined:1"
    )
    for result, due in zip(
        found, [sized, sized[:6], again, X.reshape(2, 2, 3), X, np.array([2, 2])], strict=True
    ):
        np.testing.assert_array_equal(result, due)


@OPSETS
def test_arrays_are_split_gathered_and_joined(opset):
    graph = Lists()
    size = graph.constant("size", 2)
    graph.add("TensorArrayV3", "array", [size], dtype=FLOAT)
    graph.add(
        "TensorArraySplitV3",
        "split",
        ["array", "x", graph.constant("lengths", np.array([2, 2])), "array:1"],
        T=FLOAT,
    )
    graph.add("TensorArrayReadV3", "read", ["array", graph.constant("one", 1), "split"], dtype=FLOAT)
    graph.add(
        "TensorArrayGatherV3", "gathered", ["array", graph.constant("places", [1, 0]), "split"], dtype=FLOAT
    )
    graph.add("TensorArrayConcatV3", "joined", ["array", "split"], dtype=FLOAT)
    graph.add("TensorArraySizeV3", "count", ["array", "split"])
    graph.add("TensorArrayV3", "other", [graph.constant("three", 3)], dtype=FLOAT)
    graph.add(
        "TensorArrayScatterV3",
        "scattered",
        ["other", graph.constant("ends", [2, 0]), "gathered", "other:1"],
        T=FLOAT,
    )
    graph.add(
        "TensorArrayGatherV3",
        "three_of",
        ["other", graph.constant("all", [0, 1, 2]), "scattered"],
        dtype=FLOAT,
    )
    parts = X.reshape(2, 2, 3)
    scattered = np.stack([parts[0], 0 * parts[0], parts[1]])
    found = graph.results(opset, "read", "gathered", "joined", "joined:1", "count", "three_of")
    for result, due in zip(
        found, [parts[1], parts[::-1], X, np.array([2, 2]), np.int32(2), scattered], strict=True
    ):
        np.testing.assert_array_equal(result, due)


def looping(write: bool, read: str) -> Lists:
    """A loop over the rows of x that keeps a list; `read` is what it does with the list beside writing it."""
    graph = Lists()
    graph.add("Shape", "shape", ["x"], T=FLOAT, out_type=INT32)
    graph.add("Unpack", "sizes", ["shape"], num=2, axis=0, T=INT32)
    graph.on_list("TensorListReserve", "list", ["any", "sizes"], shape_type=INT32)
    variables = [("i", INT32), ("n", INT32), ("list", VARIANT), ("x", FLOAT)]
    condition = graph.function("cond", variables, [("go", "DT_BOOL", "go:z:0")])
    condition.call("Less", "go", ["i", "n"], INT32)
    body = graph.function(
        "body",
        variables,
        [
            ("i2", INT32, "i2:z:0"),
            ("n2", INT32, "n"),
            ("l2", VARIANT, "set:output_handle:0" if write else "list"),
            ("x2", FLOAT, "x"),
        ],
    )
    body.constant("one", 1)
    body.call("AddV2", "i2", ["i", "one:output:0"], INT32)
    body.constant("axis", 0)
    body.add("GatherV2", "row", ["x", "i", "axis:output:0"], Tparams=FLOAT, Tindices=INT32, Taxis=INT32)
    body.call("AddV2", "item", ["row:output:0", "row:output:0"])
    position = "i" if read != "backwards" else "last:z:0"
    if read == "backwards":
        body.call("Sub", "rest", ["n", "i"], INT32)
        body.call("Sub", "last", ["rest:z:0", "one:output:0"], INT32)
    body.add("TensorListSetItem", "set", ["list", position, "item:z:0"], element_dtype=FLOAT)
    start = graph.constant("start", 1 if read == "from one" else 0)
    graph.add(
        "While",
        "loop",
        [start, "sizes", "list", "x"],
        T=[INT32, INT32, VARIANT, FLOAT],
        cond="cond",
        body="body",
    )
    graph.on_list("TensorListStack", "out", ["loop:2", "any"])
    return graph


@OPSETS
@pytest.mark.parametrize("read", ["", "backwards", "from one"])
def test_a_list_that_a_loop_writes(opset, read):
    """Only the body of the loop has the rank of the elements."""
    expected = 2 * (X[::-1] if read == "backwards" else X)
    if read == "from one":
        expected = np.concatenate([0 * X[:1], expected[1:]])
    for rows in (4, 1):
        [found] = looping(True, read).results(opset, "out", x=X[:rows])
        due = expected[:rows] if read != "backwards" else 2 * X[:rows][::-1]
        np.testing.assert_array_equal(found, due)


def test_a_list_that_is_written_in_order_is_a_scan_output():
    for read, carried in (("", 1), ("backwards", 1)):
        graph = looping(True, read)
        program = opsetta.SourceModel(capture_graph(graph.message, outputs=["out"])).lower(13)
        [loop] = [node for node in program.model.graph if node.op_type == "Loop"]
        assert len(loop.inputs) == 2 + carried
        body = loop.attributes["body"].as_graph()
        assert any(node.op_type == "ScatterND" for node in body) == (read == "backwards")


def test_a_list_that_nothing_writes_has_no_tensor():
    graph = looping(False, "")
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="a list is read before it is written to"):
        graph.results(13, "out")


def test_parts_of_different_lengths_are_refused():
    graph = Lists()
    graph.on_list(
        "TensorListSplit",
        "split",
        ["x", "row", graph.constant("lengths", np.array([3, 1]))],
        shape_type=INT32,
    )
    graph.on_list("TensorListStack", "out", ["split", "any"])
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="must have the same length"):
        graph.results(13, "out")


def test_a_stated_shape_of_variants_is_not_that_of_their_tensor():
    """The rows of a ragged tensor become one tensor [rows, 2], whose stated shape is [rows]."""
    graph = Lists()
    graph.add(
        "RaggedTensorToVariant",
        "rows",
        [graph.placeholder("splits", [-1], "DT_INT64"), "x"],
        RAGGED_RANK=1,
        Tvalues=FLOAT,
        Tsplits="DT_INT64",
        batched_input=True,
    )
    graph.message.node[-1].attr["_output_shapes"].list.shape.add().dim.add(size=-1)
    graph.add("Shape", "sizes", ["rows"], T=VARIANT, out_type=INT32)
    program = opsetta.SourceModel(capture_graph(graph.message, outputs=["sizes"])).lower(9, optimize="none")
    [rows] = [node.outputs[0] for node in program.model.graph if node.op_type == "Concat"]
    assert rows.shape is None or len(rows.shape) == 2
    np.testing.assert_array_equal(program(x=X, splits=np.array([0, 1, 1, 4])), [3, 2])

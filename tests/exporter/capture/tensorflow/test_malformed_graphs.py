"""Axes, attributes and counts that TensorFlow refuses, and nodes that older tools leave in frozen graphs."""

import numpy as np
import onnx
import pytest

import opsetta
from opsetta.exporter.capture.tensorflow.graph.graph_capture import capture_graph

from .graphs import FLOAT, INT32, Graph

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def graph() -> Graph:
    made = Graph()
    made.placeholder("x", [2, 3, 4])
    return made


def lowered(made: Graph, opset: int, outputs: list[str] | None = None):
    program = opsetta.SourceModel(capture_graph(made.message, outputs=outputs)).lower(opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


@pytest.mark.parametrize(
    ("op", "operand", "attributes"),
    [
        ("Prod", [3], {"Tidx": INT32}),
        ("ArgMin", 3, {"Tidx": INT32}),
        ("ReverseV2", [-4], {"Tidx": INT32}),
        ("Cumsum", 7, {"Tidx": INT32}),
        ("Transpose", [0, 1], {"Tperm": INT32}),
        ("Transpose", [0, 0, 1], {"Tperm": INT32}),
        ("Reshape", [-1, -1], {"Tshape": INT32}),
        ("Reshape", [5, -1], {"Tshape": INT32}),
        ("Tile", [2, 2], {"Tmultiples": INT32}),
        ("Tile", [2, 2, -1], {"Tmultiples": INT32}),
        ("Pad", [[1, 1]], {"Tpaddings": INT32}),
        ("BroadcastTo", [5, 3, 4], {"Tidx": INT32}),
    ],
)
@pytest.mark.parametrize("opset", [9, 18])
def test_operands_that_tensorflow_refuses_are_refused(op, operand, attributes, opset):
    made = graph()
    made.call(op, "y", ["x", made.constant("operand", operand)], **attributes)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=f"tf::{op} \\(once, in y\\)"):
        lowered(made, opset)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("MaxPool", {"ksize": [1, 1, 1, 1], "strides": [1, 1, 1, 1], "padding": "FULL"}, "'FULL'"),
        ("MaxPool", {"ksize": [1, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}, "at least 4"),
        ("DepthToSpace", {"block_size": 1}, "at least 2"),
    ],
)
def test_words_and_numbers_that_the_definition_excludes_are_refused(op, attributes, message):
    made = Graph()
    made.placeholder("x", [1, 4, 4, 4])
    made.call(op, "y", ["x"], **attributes)
    with pytest.raises(opsetta.ModelFileError, match=message):
        capture_graph(made.message)


@pytest.mark.parametrize("ends", [{"min": 3.0, "max": 1.0}, {"min": float("inf")}, {"max": float("nan")}])
@pytest.mark.parametrize("opset", [7, 18])
def test_ranges_that_are_none_are_refused(ends, opset):
    made = graph()
    made.add("FakeQuantWithMinMaxArgs", "y", ["x"], **ends)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="must be finite, and min not above max"):
        lowered(made, opset)


@pytest.mark.parametrize("opset", [7, 9, 13, 18])
@pytest.mark.parametrize("computation", ["pow", "difference", "unique", "top"])
def test_axes_that_are_computed_from_constants_fold(computation, opset):
    made = graph()
    numbers = made.constant("numbers", [2, 0, 2])
    if computation == "pow":
        axes = made.call("Pow", "axes", [made.constant("a", [1, 2]), made.constant("b", 1)], INT32)
    elif computation == "difference":
        whole = made.constant("whole", [0, 1, 2])
        axes = made.call("ListDiff", "axes", [whole, made.constant("b", [1])], INT32, out_idx=INT32)
    elif computation == "unique":
        axes = made.call("Unique", "axes", [numbers], INT32, out_idx=INT32)
    else:
        axes = made.call("TopKV2", "axes", [made.constant("c", [0, 2, 1]), made.constant("k", 2)], INT32)
    made.call("Sum", "y", ["x", axes], Tidx=INT32, keep_dims=True)
    expected = X.sum((1, 2) if computation in ("pow", "top") else (0, 2), keepdims=True)
    np.testing.assert_allclose(lowered(made, opset, ["y"])(X), expected)


@pytest.mark.parametrize("opset", [9, 21])
@pytest.mark.parametrize(("op", "number"), [("Max", "min"), ("Min", "max")])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_extremes_of_no_elements(op, number, dtype, opset):
    made = Graph()
    kind = {"float32": FLOAT, "float64": "DT_DOUBLE", "int32": INT32, "int64": "DT_INT64"}[dtype]
    made.placeholder("p", [2], kind)
    made.constant("nothing", np.zeros((0,), dtype))
    made.call(op, "extreme", ["nothing", made.constant("axis", 0)], kind, Tidx=INT32)
    made.call("Minimum" if op == "Max" else "Maximum", "y", ["p", "extreme"], kind)
    limits = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
    due = {"min": -np.inf, "max": np.inf}[number] if dtype.startswith("f") else getattr(limits, number)
    result = lowered(made, opset)(np.zeros(2, dtype))
    np.testing.assert_array_equal(result, np.full(2, due, dtype))


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("positions", [[3, 1], [0, 5]])
def test_scattering_extends_an_array_of_dynamic_size(positions, opset):
    made = graph()
    made.add("TensorArrayV3", "array", [made.constant("size", 2)], dtype=FLOAT, dynamic_size=True)
    places = made.constant("places", positions)
    made.call("TensorArrayScatterV3", "written", ["array", places, "x", "array:1"])
    index = made.constant("index", positions[1])
    made.add("TensorArrayReadV3", "y", ["array", index, "written"], dtype=FLOAT)
    made.add("TensorArraySizeV3", "count", ["array", "written"])
    row, count = lowered(made, opset, ["y", "count"])(X)
    np.testing.assert_array_equal(row, X[1])
    assert count == max(positions) + 1


def test_scattering_behind_the_end_of_an_array_is_refused():
    made = graph()
    made.add("TensorArrayV3", "array", [made.constant("size", 2)], dtype=FLOAT)
    places = made.constant("places", [0, 2])
    made.call("TensorArrayScatterV3", "written", ["array", places, "x", "array:1"])
    made.add("TensorArrayReadV3", "y", ["array", made.constant("index", 0), "written"], dtype=FLOAT)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="of a list of 2 elements"):
        lowered(made, 13, ["y"])


def test_a_constant_and_a_placeholder_are_results():
    made = Graph()
    made.constant("c", [1.5, 2.0])
    np.testing.assert_array_equal(lowered(made, 13)(), np.float32([1.5, 2.0]))
    made = graph()
    np.testing.assert_array_equal(lowered(made, 13)(X), X)


def test_reads_of_variables_that_are_constants_give_the_constants():
    made = graph()
    made.constant("variable", np.float32(0.25))
    made.constant("training", np.bool_(False))
    made.add("Switch", "switch", ["variable", "training"], T="DT_RESOURCE")
    made.add("Identity", "handle", ["switch"], T="DT_RESOURCE")
    made.add("ReadVariableOp", "read", ["handle"], dtype=FLOAT)
    made.call("Sub", "y", ["x", "read"])
    np.testing.assert_allclose(lowered(made, 13, ["y"])(X), X - 0.25)

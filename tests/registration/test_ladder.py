"""The version ladder: an operator is emitted as its newest version means it, whatever the target has."""

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest

import opsetta.symbolics
from opsetta.registration import DataType, EmissionError, GraphContext, Value, default_registry

assert opsetta.symbolics


def context(opset, registry=default_registry):
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="graph")
    return GraphContext(graph, opset, registry)


def given(g, name, shape, dtype=DataType.FLOAT):
    value = Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
    g.graph.inputs.append(value)
    return value


def operators(g):
    return [node.op_type for node in g.graph if node.op_type != "Constant"]


def evaluated(g, result, **inputs):
    result.name = "result"
    g.graph.outputs.append(g.construction.use(result))
    model = ir.to_proto(ir.Model(g.graph, ir_version=8))
    return onnx.reference.ReferenceEvaluator(model).run(None, inputs)[0]


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 7


@pytest.mark.parametrize("opset", [9, 13])
def test_softmax_is_along_one_axis_at_every_opset(opset):
    g = context(opset)
    result = g.op("Softmax", given(g, "x", [2, 3, 4]), axis=1)
    assert operators(g) == (["Softmax"] if opset == 13 else ["Transpose", "Softmax", "Transpose"])
    e = np.exp(X)
    np.testing.assert_allclose(evaluated(g, result, x=X), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_the_targets_own_version_can_be_asked_for():
    g = context(11)
    g.op_of_target("Softmax", given(g, "x", [2, 3, 4]), axis=0)
    assert operators(g) == ["Softmax"]


@pytest.mark.parametrize("opset", [9, 18, 19])
def test_a_value_that_a_version_does_not_take_yet_is_composed(opset):
    g = context(opset)
    result = g.op("Pad", given(g, "x", [2, 3, 4]), pads=[0, 0, 2, 0, 0, 1], mode="wrap")
    assert ("Pad" in operators(g)) == (opset == 19)
    if opset < 19:
        assert np.array_equal(evaluated(g, result, x=X), np.pad(X, [(0, 0), (0, 0), (2, 1)], mode="wrap"))


@pytest.mark.parametrize("any_data", [False, True])
def test_below_11_only_positions_of_any_data_are_counted_from_the_front(any_data):
    g = context(10)
    emit = g.op_of_any_data if any_data else g.op
    result = emit("Gather", given(g, "x", [2, 3, 4]), given(g, "i", [2], DataType.INT64), axis=1)
    assert (operators(g) == ["Gather"]) == (not any_data)
    index = np.array([-1, 0]) if any_data else np.array([2, 0])
    assert np.array_equal(evaluated(g, result, x=X, i=index), X[:, index])


def test_a_rung_of_a_fork_goes_before_the_default_and_stays_there():
    registry = default_registry.fork()
    registry.stand_in("Softmax", 13, lambda g, input, axis=-1: g.op("Sigmoid", input))
    for chosen, expected in ((registry, ["Sigmoid"]), (default_registry, ["Softmax"])):
        g = context(11, chosen)
        g.op("Softmax", given(g, "x", [2, 3]), axis=-1)
        assert operators(g) == expected


def test_what_nothing_says_is_refused_with_the_first_opset_that_does():
    g = context(18)
    with pytest.raises(EmissionError, match="from 20") as caught:
        g.op_of_target(
            "GridSample", given(g, "x", [1, 1, 2, 2]), given(g, "grid", [1, 2, 2, 2]), mode="cubic"
        )
    assert caught.value.first_opset == 20


@pytest.mark.parametrize(
    ("opset", "op_type", "arguments", "named", "expected"),
    [
        (13, "Trilu", (), {}, False),
        (14, "Trilu", (), {}, True),
        (9, "TopK", ("K",), {}, False),
        (10, "TopK", ("K",), {}, True),
        (17, "ScatterElements", (), {"reduction": "max"}, False),
        (17, "ScatterElements", (), {"reduction": "add"}, True),
        (18, "ScatterElements", (), {"reduction": "max"}, True),
        (10, "Equal", (), {"dtype": DataType.FLOAT}, False),
        (11, "Equal", (), {"dtype": DataType.FLOAT}, True),
        (11, "Loop", (), {"result": Value(type=ir.SequenceType(ir.TensorType(DataType.FLOAT)))}, False),
        (13, "Loop", (), {"result": Value(type=ir.SequenceType(ir.TensorType(DataType.FLOAT)))}, True),
    ],
)
def test_what_the_target_has(opset, op_type, arguments, named, expected):
    assert context(opset).has(op_type, *arguments, **named) is expected


def test_kernels_are_asked_for_by_element_type():
    g = context(20)
    assert g.has_kernel("Gelu", given(g, "x", [2]))
    assert g.has_kernel("Add", given(g, "y", [2], DataType.DOUBLE))
    assert not g.has_kernel("Gelu", given(g, "z", [2], DataType.DOUBLE))


def test_aten_functions_know_no_opset():
    """What an ONNX operator is at each opset stands in `symbolics/onnx` alone."""
    later = {name for name in default_registry.names() if name.startswith("aten::")}
    assert not {name: found for name in later if (found := set(default_registry.versions(name))) != {9}}


@pytest.mark.parametrize("opset", [7, 10, 11])
@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("indices", [-1, [-2, 0], np.array([[-3], [1]])])
def test_constant_negative_positions_of_gather_are_positive_below_11(opset, size, indices):
    g = context(opset)
    result = g.op("Gather", given(g, "x", [2, size, 4]), indices, axis=1)
    [node] = [node for node in g.graph if node.op_type == "Gather" and node.inputs[0].name == "x"]
    positions = g.constant_value(node.inputs[1])
    if opset == 11:
        assert np.array_equal(positions, indices)
    else:
        assert (positions is None) == (size == "n")
        assert positions is None or np.array_equal(positions, np.asarray(indices) % 3)
    assert np.array_equal(evaluated(g, result, x=X), np.take(X, indices, axis=1))

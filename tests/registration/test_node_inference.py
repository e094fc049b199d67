"""Shapes that are inferred for each new node, for sources that state none."""

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.registration import DataType, GraphContext, UnsupportedError, Value, default_registry


@pytest.fixture
def g() -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="graph")
    context = GraphContext(graph, 18, default_registry)
    context.construction.infers = True
    return context


def given(g: GraphContext, *sizes: int | str | None, dtype: DataType = DataType.FLOAT) -> Value:
    value = Value(name=f"x{len(g.graph.inputs)}", type=ir.TensorType(dtype), shape=ir.Shape(sizes))
    g.graph.inputs.append(value)
    return value


def test_a_convolution_has_a_shape(g):
    x, kernel = given(g, "n", 3, 32, 32), g.constant(np.zeros((8, 3, 3, 3), np.float32))
    assert str(g.op("Conv", x, kernel, strides=[2, 2], pads=[0, 0, 1, 1]).shape) == "[n,8,16,16]"
    assert str(g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]).shape) == "[n,3,16,16]"


def test_every_result_has_a_shape(g):
    parts = g.op("Split", given(g, 2, 6), axis=1, num_outputs=3, outputs=3)
    assert [str(part.shape) for part in parts] == ["[2,2]"] * 3


def test_sizes_that_are_read_from_a_shape_keep_their_names(g):
    x = given(g, "n", 4, 5)
    batch = g.op("Squeeze", g.op("Gather", g.op("Shape", x), [0], axis=0), axes=[0])
    narrow = g.op("Unsqueeze", g.cast(g.cast(batch, DataType.INT32), DataType.INT64), axes=[0])
    sizes = g.op("Concat", narrow, [20], axis=0)
    assert str(g.op("Reshape", x, sizes).shape) == "[n,20]"
    assert str(g.op("Expand", given(g, 1, 20), sizes).shape) == "[n,20]"
    assert str(g.op("ConstantOfShape", sizes).shape) == "[n,20]"


def test_computed_sizes_are_unknown(g):
    sizes = g.op("Concat", g.op("Add", given(g, 1, dtype=DataType.INT64), 1), [7], axis=0)
    assert str(g.op("ConstantOfShape", sizes).shape) == "[None,7]"


def test_what_onnx_refuses_is_refused(g):
    with pytest.raises(
        UnsupportedError, match=r"Conv does not take its inputs: Number of spatial dimensions"
    ):
        g.op("Conv", given(g, 1, 3, 8, 8), given(g, 8, 4, 3))


def test_sources_that_state_shapes_are_not_inferred(g):
    g.construction.infers = False
    x, kernel = given(g, 1, 3, 32, 32), g.constant(np.zeros((8, 3, 3, 3), np.float32))
    assert g.op("Conv", x, kernel).shape is None

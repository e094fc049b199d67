"""Shapes that several TensorFlow nodes compute: what is known of them stays known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opsetta.symbolics
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import KIND, default_registry
from opsetta.registration.arguments import source_node

from ..opsets import HIGHEST
from .checks import run

INT32 = ir.DataType.INT32


class Graph:
    """A source graph under construction, of one input `x`."""

    def __init__(self, *sizes: int | None):
        self.x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(sizes))
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def const(self, value: Any, dtype: Any = np.int32) -> ir.Value:
        array = np.asarray(value, dtype)
        result = ir.Value(
            name=f"const{len(self.constants)}",
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array),
        )
        result.metadata_props[KIND] = "constant"
        self.constants.append(result)
        return result

    def op(self, name: str, dtype: ir.DataType = INT32, /, **arguments: Any) -> ir.Value:
        result = ir.Value(name=f"{name}{len(self.nodes)}", type=ir.TensorType(dtype))
        self.nodes.append(source_node(f"tf::{name}", arguments, outputs=[result]))
        return result

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """`tf.shape(value)[axis]`."""
        shape = self.op("Shape", input=value, T=ir.DataType.FLOAT, out_type=INT32)
        begin, end, strides = self.const([axis]), self.const([axis + 1]), self.const([1])
        return self.op("StridedSlice", input=shape, begin=begin, end=end, strides=strides, shrink_axis_mask=1)

    def model(self, result: ir.Value, opset: int) -> ir.Model:
        graph = ir.Graph([self.x], [result], nodes=self.nodes, initializers=self.constants, name="graph")
        return lower(ir.Model(graph, ir_version=10), opset, default_registry).model


def computed(model: ir.Model, x: np.ndarray) -> np.ndarray:
    return run(ir.to_proto(model), {"x": x})[0]


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
FLOAT = ir.DataType.FLOAT


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_a_packed_shape_with_one_unknown_size_is_one_reshape(opset: int) -> None:
    graph = Graph(None, 3, 4)
    sizes = [graph.size(graph.x, 0), graph.const(12)]
    shape = graph.op("Pack", values=sizes, N=2, T=INT32, axis=0)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=graph.x, shape=shape), opset)
    assert [node.op_type for node in model.graph] == ["Reshape"]
    np.testing.assert_array_equal(computed(model, X), X.reshape(2, 12))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_known_sizes_are_constants(opset: int) -> None:
    graph = Graph(None, 3, 4)
    product = graph.op("Mul", x=graph.size(graph.x, 1), y=graph.size(graph.x, -1))
    shape = graph.op("Pack", values=[graph.const(-1), product], N=2, T=INT32, axis=0)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=graph.x, shape=shape), opset)
    assert [node.op_type for node in model.graph] == ["Reshape"]
    np.testing.assert_array_equal(computed(model, X), X.reshape(2, 12))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_two_unknown_sizes(opset: int) -> None:
    graph = Graph(None, None, 4)
    sizes = [graph.size(graph.x, 1), graph.size(graph.x, 0), graph.const(4)]
    shape = graph.op("Pack", values=sizes, N=3, T=INT32, axis=0)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=graph.x, shape=shape), opset)
    assert model.graph.outputs[0].shape is not None
    np.testing.assert_array_equal(computed(model, X), X.reshape(3, 2, 4))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_a_slice_of_a_shape_joined_to_numbers(opset: int) -> None:
    graph = Graph(None, 3, 4)
    shape = graph.op("Shape", input=graph.x, T=FLOAT, out_type=INT32)
    front = graph.op(
        "StridedSlice",
        input=shape,
        begin=graph.const([0]),
        end=graph.const([2]),
        strides=graph.const([1]),
        begin_mask=1,
    )
    whole = graph.op("ConcatV2", values=[front, graph.const([2, 2])], axis=graph.const(0), N=2, T=INT32)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=graph.x, shape=whole), opset)
    np.testing.assert_array_equal(computed(model, X), X.reshape(2, 3, 2, 2))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_unpacked_sizes_fill_a_tensor(opset: int) -> None:
    graph = Graph(None, 3, 4)
    shape = graph.op("Shape", input=graph.x, T=FLOAT, out_type=INT32)
    parts = [ir.Value(name=f"part{i}", type=ir.TensorType(INT32)) for i in range(3)]
    graph.nodes.append(source_node("tf::Unpack", {"value": shape, "num": 3, "axis": 0}, outputs=parts))
    dims = graph.op("Pack", values=[parts[2], parts[0]], N=2, T=INT32, axis=0)
    model = graph.model(graph.op("Fill", FLOAT, dims=dims, value=graph.const(1.5, np.float32)), opset)
    np.testing.assert_array_equal(computed(model, X), np.full((4, 2), 1.5, np.float32))


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_the_order_of_a_default_transposition_is_known(opset: int) -> None:
    """`tf.transpose(x)` of old graphs: rank - 1 - range(rank)."""
    graph = Graph(None, 3, 4)
    rank = graph.op("Rank", input=graph.x, T=FLOAT)
    last = graph.op("Sub", x=rank, y=graph.const(1))
    numbers = graph.op("Range", start=graph.const(0), limit=rank, delta=graph.const(1), Tidx=INT32)
    perm = graph.op("Sub", x=last, y=numbers)
    model = graph.model(graph.op("Transpose", FLOAT, x=graph.x, perm=perm), opset)
    assert [node.op_type for node in model.graph] == ["Transpose"]
    np.testing.assert_array_equal(computed(model, X), X.T)


def test_an_unknown_attribute_is_refused() -> None:
    graph = Graph(2, 3, 4)
    result = graph.op("Neg", FLOAT, x=graph.x, T=FLOAT, rounding="up")
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="no parameter 'rounding'"):
        graph.model(result, 13)


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
@pytest.mark.parametrize("sizes", [(None, 3, 4), (None, None, 4), (2, 3, 4)])
def test_a_dense_layer_of_three_dimensions(opset: int, sizes: tuple[int | None, ...]) -> None:
    """What `tf.tensordot` computes of the shape leaves two Reshapes and a product."""
    graph = Graph(*sizes)
    shape = graph.op("Shape", input=graph.x, T=FLOAT, out_type=INT32)
    zero, one = graph.const(0), graph.const([0])
    free = graph.op("GatherV2", params=shape, indices=graph.const([0, 1]), axis=zero)
    summed = graph.op("GatherV2", params=shape, indices=graph.const([2]), axis=zero)
    rows = graph.op("Prod", input=free, reduction_indices=one, keep_dims=False, T=INT32)
    columns = graph.op("Prod", input=summed, reduction_indices=one, keep_dims=False, T=INT32)
    target = graph.op("Pack", values=[rows, columns], N=2, T=INT32, axis=0)
    perm = graph.op("ConcatV2", values=[graph.const([0, 1]), graph.const([2])], axis=zero, N=2, T=INT32)
    moved = graph.op("Transpose", FLOAT, x=graph.x, perm=perm)
    flat = graph.op("Reshape", FLOAT, tensor=moved, shape=target)
    weight = np.arange(20, dtype=np.float32).reshape(4, 5)
    product = graph.op("MatMul", FLOAT, a=flat, b=graph.const(weight, np.float32))
    whole = graph.op("ConcatV2", values=[free, graph.const([5])], axis=zero, N=2, T=INT32)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=product, shape=whole), opset)
    if sizes != (None, None, 4):
        assert [node.op_type for node in model.graph] == ["Reshape", "MatMul", "Reshape"]
    np.testing.assert_allclose(computed(model, X), X @ weight)


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
def test_a_product_of_the_sizes_of_a_slice(opset: int) -> None:
    """`tf.reshape(x, [-1, tf.reduce_prod(tf.shape(x)[1:])])`."""
    graph = Graph(None, 3, 4)
    shape = graph.op("Shape", input=graph.x, T=FLOAT, out_type=INT32)
    bounds = {"begin": graph.const([1]), "end": graph.const([0]), "strides": graph.const([1])}
    rest = graph.op("StridedSlice", input=shape, **bounds, end_mask=1)
    count = graph.op("Prod", input=rest, reduction_indices=graph.const([0]), keep_dims=False, T=INT32)
    target = graph.op("Pack", values=[graph.const(-1), count], N=2, T=INT32, axis=0)
    model = graph.model(graph.op("Reshape", FLOAT, tensor=graph.x, shape=target), opset)
    assert [node.op_type for node in model.graph] == ["Reshape"]
    np.testing.assert_array_equal(computed(model, X), X.reshape(2, 12))


@pytest.mark.parametrize("opset", [9, HIGHEST])
def test_joined_floats_are_no_sizes(opset: int) -> None:
    graph = Graph(2)
    given = graph.const([0.5, 1.5], np.float32)
    whole = graph.op("ConcatV2", FLOAT, values=[graph.x, given], axis=graph.const(0), N=2, T=FLOAT)
    bounds = {"begin": graph.const([1]), "end": graph.const([4]), "strides": graph.const([1])}
    model = graph.model(graph.op("StridedSlice", FLOAT, input=whole, **bounds), opset)
    x = np.array([0.25, 0.75], np.float32)
    np.testing.assert_array_equal(computed(model, x), np.array([0.75, 0.5, 1.5], np.float32))


def test_ignored_indices_are_refused() -> None:
    graph = Graph(4)
    places = graph.const([[9], [1]])
    found = graph.op("GatherNd", FLOAT, params=graph.x, indices=places, bad_indices_policy="IGNORE")
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="IGNORE"):
        graph.model(found, 13)

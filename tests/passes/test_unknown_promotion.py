"""Promotion of values of unknown element type or rank: decided at once, decided in lowering, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.exporter.running.sessions.session import Session
from opsetta.passes import promote_types
from opsetta.registration import (
    GraphContext,
    UnsupportedOperatorsError,
    Value,
    default_registry,
    onnx_symbolic,
)
from opsetta.registration.arguments import arguments, source_node

REGISTRY = default_registry.fork()


@onnx_symbolic("user::opaque", opset=9, registry=REGISTRY)
def opaque(g: GraphContext, self: Value) -> Value:
    """onnxruntime's own Gelu, of whose results nothing is known as the graph is built."""
    return g.op("com.microsoft::Gelu", self)


class _Graph:
    """Source nodes whose outputs have no element type and no shape unless they are given."""

    def __init__(self) -> None:
        self.inputs: list[ir.Value] = []
        self.nodes: list[ir.Node] = []

    def input(self, dtype: DataType | None, *dims: int | None, ranked: bool = True) -> ir.Value:
        value = ir.Value(
            name=f"x{len(self.inputs)}",
            type=None if dtype is None else ir.TensorType(dtype),
            shape=ir.Shape(dims) if ranked else None,
        )
        self.inputs.append(value)
        return value

    def call(self, name: str, overload: str = "default", /, **given: Any) -> ir.Value:
        node = source_node(name, given, overload=overload, num_outputs=1)
        self.nodes.append(node)
        return node.outputs[0]

    def unknown(self, value: ir.Value) -> ir.Value:
        """The value without its element type and rank, which the lowering finds out."""
        return self.call("aten::alias", self=value)

    def model(self, *outputs: ir.Value) -> ir.Model:
        for index, value in enumerate(outputs):
            value.name = f"y{index}"
        return ir.Model(ir.Graph(self.inputs, outputs, nodes=self.nodes, name="g"), ir_version=10)


def _run(graph: _Graph, result: ir.Value, *given: Any, opset: int = 18) -> np.ndarray:
    model = graph.model(result)
    promote_types(model)
    assert not promote_types(model)
    lowered = lower(model, opset, REGISTRY).model
    feed = {f"x{i}": np.asarray(item) for i, item in enumerate(given)}
    return Session(lowered).run(feed)[0].numpy()


def _refusal(graph: _Graph, result: ir.Value, opset: int = 18) -> str:
    model = graph.model(result)
    promote_types(model)
    with pytest.raises(UnsupportedOperatorsError) as caught:
        lower(model, opset, REGISTRY)
    return str(caught.value)


HALF, SINGLE = np.float16([1, 2]), np.float32([0.5, 2])


@pytest.mark.parametrize("opset", [9, 13, 18, 23])
def test_unknown_type_is_settled_in_lowering(opset: int) -> None:
    graph = _Graph()
    half, single = graph.input(DataType.FLOAT16, 2), graph.input(DataType.FLOAT, 2)
    total = graph.call("aten::add", "Tensor", self=graph.unknown(half), other=single)
    found = _run(graph, total, HALF, SINGLE, opset=opset)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, HALF + SINGLE)


def test_unknown_rank_is_settled_in_lowering() -> None:
    graph = _Graph()
    half, scale = graph.input(DataType.FLOAT16, 2), graph.input(DataType.FLOAT)
    scaled = graph.call("aten::mul", "Tensor", self=graph.unknown(half), other=graph.unknown(scale))
    assert _run(graph, scaled, HALF, np.float32(2)).dtype == np.float16


def test_unknown_integer_becomes_float_under_a_float_number() -> None:
    graph = _Graph()
    whole = graph.unknown(graph.input(DataType.INT32, 2))
    total = graph.call("aten::add", "Tensor", self=whole, other=2.5)
    found = _run(graph, total, np.int32([1, 2]))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [3.5, 4.5])


def test_unknown_bool_becomes_integer_under_an_integer_number() -> None:
    graph = _Graph()
    truth = graph.unknown(graph.input(DataType.BOOL, 2))
    found = _run(graph, graph.call("aten::mul", "Tensor", self=truth, other=3), np.array([True, False]))
    assert found.dtype == np.int64


@pytest.mark.parametrize("name", ["sqrt", "div"])
def test_unknown_integer_is_computed_in_float_where_the_operator_does(name: str) -> None:
    graph = _Graph()
    whole = graph.unknown(graph.input(DataType.INT64, 2))
    operands = {"self": whole} if name == "sqrt" else {"self": whole, "other": whole}
    found = _run(graph, graph.call(f"aten::{name}", **operands), np.int64([4, 9]))
    assert found.dtype == np.float32


def test_unknown_integer_is_summed_in_int64() -> None:
    graph = _Graph()
    whole = graph.unknown(graph.input(DataType.INT32, 2))
    assert _run(graph, graph.call("aten::sum", self=whole), np.int32([4, 9])).dtype == np.int64


def test_unknown_members_of_a_list_are_settled_together() -> None:
    graph = _Graph()
    half = graph.unknown(graph.input(DataType.FLOAT16, 2))
    joined = graph.call("aten::cat", tensors=[half, graph.input(DataType.INT64, 2), half], dim=0)
    assert _run(graph, joined, HALF, np.int64([3, 4])).dtype == np.float16


def test_comparison_of_unknown_types_is_in_their_joint_type() -> None:
    graph = _Graph()
    whole = graph.unknown(graph.input(DataType.INT32, 2))
    found = _run(graph, graph.call("aten::lt", "Scalar", self=whole, other=1.5), np.int32([1, 2]))
    assert found.tolist() == [True, False]


def test_result_of_known_type_is_cast_to_it() -> None:
    graph = _Graph()
    half, single = graph.unknown(graph.input(DataType.FLOAT16, 2)), graph.input(DataType.FLOAT, 2)
    total = graph.call("aten::add", "Tensor", self=half, other=single)
    total.type = ir.TensorType(DataType.FLOAT16)
    reader = graph.call("aten::relu", self=total)
    assert _run(graph, reader, HALF, SINGLE).dtype == np.float16


def test_double_decides_whatever_the_other_type_is() -> None:
    graph = _Graph()
    x, wide = graph.input(None, ranked=False), graph.input(DataType.DOUBLE, 2)
    total = graph.call("aten::add", "Tensor", self=x, other=wide)
    assert promote_types(graph.model(total))
    operands = arguments(total.producer())
    assert operands["self"].dtype == DataType.DOUBLE
    assert operands["self"].producer().op_type == "to"


def test_equal_types_of_unknown_rank_need_nothing() -> None:
    graph = _Graph()
    x, y = graph.input(DataType.FLOAT16, ranked=False), graph.input(DataType.FLOAT16, 2)
    assert not promote_types(graph.model(graph.call("aten::add", "Tensor", self=x, other=y)))


def test_ranks_that_change_nothing_are_decided() -> None:
    graph = _Graph()
    x, y = graph.input(DataType.INT64, ranked=False), graph.input(DataType.FLOAT, ranked=False)
    total = graph.call("aten::add", "Tensor", self=x, other=y)
    assert promote_types(graph.model(total))
    assert [node.op_type for node in total.producer().graph] == ["to", "add"]


def test_value_beside_itself_needs_nothing() -> None:
    graph = _Graph()
    x = graph.unknown(graph.input(DataType.INT32, 2))
    assert not promote_types(graph.model(graph.call("aten::mul", "Tensor", self=x, other=x)))


def test_type_that_stays_unknown_is_refused_with_the_operator() -> None:
    graph = _Graph()
    hidden = graph.call("user::opaque", self=graph.input(DataType.FLOAT, 2))
    message = _refusal(graph, graph.call("aten::add", "Tensor", self=hidden, other=2.5))
    assert "aten::add.Tensor depends on the element type of an operand" in message
    assert ".to(dtype)" in message


def test_rank_that_stays_unknown_is_refused_with_the_operator() -> None:
    graph = _Graph()
    x, y = graph.input(DataType.FLOAT16, ranked=False), graph.input(DataType.FLOAT, ranked=False)
    message = _refusal(graph, graph.call("aten::lt", "Tensor", self=x, other=y))
    assert "aten::lt.Tensor depends on the number of dimensions" in message


@pytest.mark.parametrize("opset", [15, 18, 23])
def test_bool_number_takes_the_unknown_type_as_the_model_runs(opset: int) -> None:
    graph = _Graph()
    hidden = graph.call("user::opaque", self=graph.input(DataType.FLOAT, 2))
    product = graph.call("aten::mul", "Tensor", self=hidden, other=True)
    assert _run(graph, product, SINGLE, opset=opset).dtype == np.float32


@pytest.mark.parametrize("opset", [15, 18, 23])
def test_what_is_written_takes_the_unknown_type_as_the_model_runs(opset: int) -> None:
    graph = _Graph()
    hidden = graph.call("user::opaque", self=graph.input(DataType.FLOAT, 2))
    mask, number = graph.input(DataType.BOOL, 2), graph.input(DataType.DOUBLE)
    filled = graph.call("aten::masked_fill", "Tensor", self=hidden, mask=mask, value=number)
    found = _run(graph, filled, SINGLE, np.array([True, False]), np.float64(7), opset=opset)
    assert found.dtype == np.float32
    assert found[0] == 7


def test_below_opset_15_the_unknown_type_is_refused() -> None:
    graph = _Graph()
    hidden = graph.call("user::opaque", self=graph.input(DataType.FLOAT, 2))
    mask, number = graph.input(DataType.BOOL, 2), graph.input(DataType.DOUBLE)
    filled = graph.call("aten::masked_fill", "Tensor", self=hidden, mask=mask, value=number)
    message = _refusal(graph, filled, opset=14)
    assert "the element type to cast to must be known" in message
    assert "opset 15 is the lowest that can" in message

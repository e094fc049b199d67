"""Source graphs written by hand, and the check that what they are lowered to computes what numpy does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir import DataType, Value

from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import NUMBER, default_registry
from opsetta.registration.arguments import source_node

from ..onnxruntime_sessions import open_session

KINDS = {"int": DataType.INT64, "float": DataType.DOUBLE, "bool": DataType.BOOL}
FLOAT, INT64 = DataType.FLOAT, DataType.INT64

Like = Callable[[str], Value]
"""Makes a value of a name, of one element type and shape."""


def tensor(*shape: int | str | None, dtype: DataType = FLOAT) -> Like:
    """A tensor; a size is a number, a name, or None."""
    return lambda name: Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def unranked(dtype: DataType = FLOAT) -> Like:
    """A tensor of unknown rank."""
    return lambda name: Value(name=name, type=ir.TensorType(dtype))


def number(kind: str = "int") -> Like:
    """A Python number."""

    def make(name: str) -> Value:
        value = Value(name=name, type=ir.TensorType(KINDS[kind]), shape=ir.Shape([]))
        value.metadata_props[NUMBER] = kind
        return value

    return make


def numbers(kind: str = "int") -> Like:
    """A list of numbers."""
    return lambda name: Value(name=name, type=ir.TensorType(KINDS[kind]), shape=ir.Shape([None]))


def tensors(*shape: int | str | None, dtype: DataType = FLOAT) -> Like:
    """A list of tensors whose elements share these sizes."""
    return lambda name: Value(name=name, type=ir.SequenceType(ir.TensorType(dtype)), shape=ir.Shape(shape))


def unranked_tensors(dtype: DataType = FLOAT) -> Like:
    """A list of tensors of unknown rank."""
    return lambda name: Value(name=name, type=ir.SequenceType(ir.TensorType(dtype)))


def untyped() -> Like:
    """A list of which nothing is known."""
    return lambda name: Value(name=name)


class Program:
    """A source graph under construction; blocks are written by functions that are called where they stand."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[ir.Node] = []
        self._count = 0

    def _named(self, like: Like, stem: str) -> Value:
        self._count += 1
        return like(f"{stem}_{self._count}")

    def input(self, like: Like, name: str) -> Value:
        self.inputs.append(like(name))
        return self.inputs[-1]

    def op(self, name: str, like: Like, /, *, overload: str = "", **arguments: Any) -> Value:
        """Append a node with one result."""
        result = self._named(like, name.partition("::")[2])
        self.nodes.append(source_node(name, arguments, overload=overload, outputs=[result]))
        return result

    def alias(self, value: Value) -> Value:
        copy = Value(name=f"{value.name}_alias_{self._count}", type=value.type, shape=value.shape)
        self._count += 1
        self.nodes.append(source_node("aten::alias", {"self": value}, outputs=[copy]))
        return copy

    def _block(self, name: str, formals: Sequence[Value], build: Callable[..., Sequence[Value]]) -> ir.Graph:
        outer, self.nodes = self.nodes, []
        results = [self._block_output(value, formals) for value in build(*formals)]
        graph = ir.Graph(formals, results, nodes=self.nodes, name=name)
        self.nodes = outer
        return graph

    def _block_output(self, value: Any, formals: Sequence[Value]) -> Value:
        if not isinstance(value, Value):
            return self.op("prim::Constant", number(type(value).__name__), value=value)
        if value in formals or value.producer() not in self.nodes:
            return self.alias(value)
        return value

    def branch(
        self,
        condition: Any,
        then: Callable[[], Sequence[Any]],
        other: Callable[[], Sequence[Any]],
        *likes: Like,
    ) -> list[Value]:
        """`prim::If`; each branch is a function that returns a value for each result."""
        graphs = [
            ir.AttrGraph("then_branch", self._block("then", [], then)),
            ir.AttrGraph("else_branch", self._block("else", [], other)),
        ]
        results = [self._named(like, "chosen") for like in likes]
        self.nodes.append(
            source_node("prim::If", {"condition": condition}, outputs=results, attributes=graphs)
        )
        return results

    def loop(
        self,
        trips: Any,
        carried: Sequence[Any],
        body: Callable[..., Sequence[Any]],
        *likes: Like,
        condition: Any = True,
    ) -> list[Value]:
        """`prim::Loop`; the body takes the iteration and what is carried, and gives a condition and that."""
        formals = [self._named(number(), "iteration"), *(self._named(like, "carried") for like in likes)]
        graph = self._block("body", formals, body)
        results = [self._named(like, "after") for like in likes]
        arguments = {"max_trip_count": trips, "condition": condition, "carried": list(carried)}
        self.nodes.append(
            source_node("prim::Loop", arguments, outputs=results, attributes=[ir.AttrGraph("body", graph)])
        )
        return results

    def model(self, outputs: Sequence[Value]) -> ir.Model:
        graph = ir.Graph(self.inputs, outputs, nodes=self.nodes, name="program", opset_imports={"aten": 1})
        return ir.Model(graph, ir_version=10)


def run(source: ir.Model, opset: int, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """What onnxruntime computes of a source graph lowered to an opset, checked by onnx before."""
    return session(source, opset)(feeds)


def session(source: ir.Model, opset: int) -> Callable[[Mapping[str, Any]], list[np.ndarray]]:
    """A source graph lowered to an opset and loaded."""
    proto = ir.to_proto(lower(source, opset, default_registry).model)
    onnx.checker.check_model(proto, full_check=True)
    loaded = open_session(proto)
    return lambda feeds: loaded.run(None, {name: np.asarray(item) for name, item in feeds.items()})

"""Imports TorchScript functions as source graphs without any types, shapes or aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from opsetta.registration import KIND, NUMBER
from opsetta.registration.arguments import source_node

_PARTS = {"aten::unbind": 3, "aten::split": 3}
"""The number of results of these operators for a tensor whose first dimension is 3."""


class _Importer:
    def __init__(self) -> None:
        self._items: dict[Any, Any] = {}

    def item(self, value: Any) -> Any:
        return self._items[value.unique()]

    def bind(self, value: Any, item: Any) -> Any:
        self._items[value.unique()] = item
        return item

    def value(self, value: Any) -> ir.Value:
        made = ir.Value(name=f"v{value.unique()}")
        if value.type().kind() in ("IntType", "BoolType", "FloatType"):
            made.metadata_props[NUMBER] = str(value.type())
        return self.bind(value, made)

    def block(self, nodes: Any, outputs: Any) -> tuple[list[ir.Node], list[ir.Value]]:
        made: list[ir.Node] = []
        for node in nodes:
            made += self.node(node)
        return made, [self.returned(self.item(value), made) for value in outputs]

    def returned(self, item: Any, nodes: list[ir.Node]) -> ir.Value:
        if isinstance(item, ir.Value):
            node = source_node("aten::alias", {"self": item}, overload="default", num_outputs=1)
        else:
            node = source_node("prim::Constant", {"value": item}, num_outputs=1)
        nodes.append(node)
        return node.outputs[0]

    def node(self, node: Any) -> list[ir.Node]:
        kind, inputs, outputs = node.kind(), list(node.inputs()), list(node.outputs())
        if kind == "prim::Constant":
            self.bind(outputs[0], outputs[0].toIValue())
        elif kind == "prim::Uninitialized":
            self.bind(outputs[0], 0)
        elif kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            self.bind(outputs[0], [self.item(value) for value in inputs])
        elif kind == "aten::__getitem__":
            self.bind(outputs[0], self.item(inputs[0])[self.item(inputs[1])])
        elif kind == "prim::If":
            return self.branch(node)
        elif kind == "prim::Loop":
            return self.loop(node)
        else:
            return self.call(node, kind, inputs, outputs)
        return []

    def call(self, node: Any, kind: str, inputs: list[Any], outputs: list[Any]) -> list[ir.Node]:
        schema = torch._C.parse_schema(node.schema())
        given = {f.name: self.item(v) for f, v in zip(schema.arguments, inputs, strict=True)}
        if kind in _PARTS:
            made = [ir.Value() for _ in range(_PARTS[kind])]
            self.bind(outputs[0], made)
        else:
            made = [self.value(value) for value in outputs]
        return [source_node(kind, given, overload=schema.overload_name or "default", outputs=made)]

    def branch(self, node: Any) -> list[ir.Node]:
        attributes = []
        for name, block in zip(("then_branch", "else_branch"), node.blocks(), strict=True):
            nodes, results = self.block(block.nodes(), block.outputs())
            attributes.append(ir.AttrGraph(name, ir.Graph([], results, nodes=nodes, name=name)))
        [condition] = node.inputs()
        outputs = [self.value(value) for value in node.outputs()]
        given = {"condition": self.item(condition)}
        if not isinstance(given["condition"], ir.Value):
            constant = source_node("prim::Constant", {"value": given["condition"]}, num_outputs=1)
            return [
                constant,
                source_node(
                    "prim::If", {"condition": constant.outputs[0]}, attributes=attributes, outputs=outputs
                ),
            ]
        return [source_node("prim::If", given, attributes=attributes, outputs=outputs)]

    def loop(self, node: Any) -> list[ir.Node]:
        trips, condition, *carried = (self.item(value) for value in node.inputs())
        [block] = node.blocks()
        formals = [self.value(value) for value in block.inputs()]
        nodes, results = self.block(block.nodes(), block.outputs())
        body = ir.Graph(formals, results, nodes=nodes, name="body")
        given = {"max_trip_count": trips, "condition": condition, "carried": carried}
        outputs = [self.value(value) for value in node.outputs()]
        return [source_node("prim::Loop", given, attributes=[ir.AttrGraph("body", body)], outputs=outputs)]


def source_graph(function: Callable[..., Any]) -> ir.Model:
    """The source graph of a function of tensors and ints that returns a tuple of tensors."""
    graph = torch.jit.script(function).graph
    importer = _Importer()
    inputs = [importer.value(value) for value in graph.inputs()]
    for value, formal in zip(inputs, graph.inputs(), strict=True):
        value.name = formal.debugName().partition(".")[0]
        value.metadata_props[KIND] = "user"
    nodes: list[ir.Node] = []
    for node in graph.nodes():
        nodes += importer.node(node)
    [result] = graph.outputs()
    outputs = list(importer.item(result))
    return ir.Model(ir.Graph(inputs, outputs, nodes=nodes, name="main"), ir_version=10)

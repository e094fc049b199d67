"""Iterates over graphs of a message and the sub-graphs in attributes of their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, overload

import onnx

_GraphOrFunction: TypeAlias = onnx.GraphProto | onnx.FunctionProto


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


@overload
def with_subgraphs(*graphs: onnx.GraphProto) -> Iterator[onnx.GraphProto]: ...
@overload
def with_subgraphs(*graphs: _GraphOrFunction) -> Iterator[_GraphOrFunction]: ...
def with_subgraphs(*graphs: _GraphOrFunction) -> Iterator[_GraphOrFunction]:
    """Yield graphs or functions and their sub-graphs at any depth, without recursion."""
    pending = [*graphs]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending.extend(subgraphs(node))


def all_graphs(model: onnx.ModelProto) -> Iterator[_GraphOrFunction]:
    """The main graph, the functions, and their sub-graphs."""
    yield from with_subgraphs(model.graph)
    for function in model.functions:
        yield from with_subgraphs(function)

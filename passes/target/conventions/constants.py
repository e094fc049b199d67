"""Target passes: write constants as initializers or as Constant nodes, for consumers that read only one form.

1. Initializers that are inputs too, or outputs, stay: callers may replace them, and outputs keep their names.
2. Weights stay initializers: only tensors of at most 1,024 integers or bools become Constant nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes import common

from ....registration.dtypes import INTEGERS

_MAXIMUM_ELEMENTS = 1024


class WriteInitializers(ir.passes.InPlacePass):
    """Turns Constant nodes into initializers of their graph."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        every = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)
        return ir.passes.PassResult(model, every(model).modified)


class WriteConstantNodes(ir.passes.InPlacePass):
    """Turns small initializers of integers and bools into Constant nodes."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for graph in (model.graph, *model.graph.subgraphs()):
            for value in list(_replaceable(graph)):
                tensor = value.const_value
                whole = value.dtype in INTEGERS or value.dtype == ir.DataType.BOOL
                if tensor is None or not whole or tensor.size > _MAXIMUM_ELEMENTS:
                    continue
                name = value.name or ""
                node = ir.node("Constant", [], attributes={"value": tensor}, name=f"Constant_{name}")
                put_first(graph, value, node)
                modified = True
        return ir.passes.PassResult(model, modified)


def _replaceable(graph: ir.Graph) -> Iterator[ir.Value]:
    """The initializers of a graph that are neither inputs nor outputs."""
    for value in graph.initializers.values():
        if not value.is_graph_input() and not value.is_graph_output():
            yield value


def put_first(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    """Put a node in place of an initializer, under its name, before everything else in the graph."""
    result = node.outputs[0]
    name = value.name
    result.type, result.shape = value.type, value.shape
    value.replace_all_uses_with(result)
    graph.initializers.pop(name or "")
    result.name = name
    if len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)

"""ONNX passes: write constants as initializers or as Constant nodes, for targets that read only one form.

1. Initializers that are inputs too, or outputs, stay: callers may replace them, and outputs keep their names.
2. Weights stay initializers: only tensors of at most 1,024 integers or bools become Constant nodes.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from ....registration.arguments import graphs_of
from ....registration.dtypes import INTEGERS

_MAXIMUM_ELEMENTS = 1024


class WriteInitializers(ir.passes.InPlacePass):
    """Turns Constant nodes into initializers of their graph."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        lift_all = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)
        return ir.passes.PassResult(model, lift_all(model).modified)


class WriteConstantNodes(ir.passes.InPlacePass):
    """Turns small initializers of integers and bools into Constant nodes."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for graph in graphs_of(model.graph):
            for value in list(graph.initializers.values()):
                if value.is_graph_input() or value.is_graph_output():
                    continue
                tensor = value.const_value
                is_discrete = value.dtype in INTEGERS or value.dtype == ir.DataType.BOOL
                if tensor is None or not is_discrete or tensor.size > _MAXIMUM_ELEMENTS:
                    continue
                name = value.name or ""
                node = ir.node("Constant", [], attributes={"value": tensor}, name=f"Constant_{name}")
                replace_initializer(graph, value, node)
                modified = True
        return ir.passes.PassResult(model, modified)


def replace_initializer(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    """Replace an initializer by a node at the start of the graph, under the same name."""
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

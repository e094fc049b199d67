"""Target pass: gives LSTM, GRU and RNN all of their outputs, because MNN and others refuse them with fewer.

1. Outputs are added behind those that the node has; nothing reads them.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration import Names

_OUTPUTS = {"GRU": 2, "LSTM": 3, "RNN": 2}


class CompleteRecurrentOutputs(ir.passes.InPlacePass):
    """Adds the final states to recurrent nodes that only have the sequence."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Add outputs in the main graph and its sub-graphs, and report whether there were any."""
        nodes = [node for node in ir.traversal.RecursiveGraphIterator(model.graph) if _is_incomplete(node)]
        if not nodes:
            return ir.passes.PassResult(model, False)
        names = Names()
        for graph in (model.graph, *model.graph.subgraphs()):
            values = [value for node in graph for value in node.outputs]
            for value in (*graph.inputs, *graph.initializers.values(), *values):
                names.take(value.name or "")
        for node in nodes:
            _complete(node, names)
        return ir.passes.PassResult(model, True)


def _is_incomplete(node: ir.Node) -> bool:
    return not node.domain and 0 < len(node.outputs) < _OUTPUTS.get(node.op_type, 0)


def _complete(node: ir.Node, names: Names) -> None:
    first, count = node.outputs[0], len(node.outputs)
    shape = first.shape
    state = ir.Shape([shape[1], shape[2], shape[3]]) if shape is not None and len(shape) == 4 else None
    node.resize_outputs(_OUTPUTS[node.op_type])
    for place, output in enumerate(node.outputs[count:], start=count):
        output.name = names.unique(f"{node.name or node.op_type}_output_{place}")
        output.type, output.shape = first.type, state

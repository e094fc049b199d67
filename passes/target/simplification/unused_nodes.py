"""Target pass: removes nodes and initializers that nothing reads.

It does what `common.RemoveUnusedNodesPass` of onnx-ir does, which asks onnx for the schema of every node and
takes five times as long.

1. Nodes without a result that is read or returned, and initializers of the main graph, are removed.
2. Optional outputs and inputs at the end of a node that are not used are left out.
3. BatchNormalization for inference has no attribute `training_mode`, and one output.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.arguments import blocks
from ....registration.schemas import operator_schema


class RemoveUnused(ir.passes.InPlacePass):
    """Removes what is not used in the main graph and its sub-graphs."""

    def __init__(self, initializers: bool = True):
        """Say what goes.

        Args:
            initializers: whether initializers go too, which later passes may read again.
        """
        super().__init__()
        self._initializers = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove nodes, then initializers, and report whether there were any."""
        removed = _remove_nodes(model.graph, model.opset_imports.get("", 0))
        initializers = model.graph.initializers
        for name, value in list(initializers.data.items()) if self._initializers else ():
            if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                del initializers[name]
                removed = True
        return ir.passes.PassResult(model, removed)


def _remove_nodes(graph: ir.Graph, opset: int) -> bool:
    removed = False
    for node in reversed(graph):
        outputs = node.outputs
        is_read = bool(outputs) and bool(outputs[0].uses())
        if not is_read and not any(value.uses() or value.is_graph_output() for value in outputs):
            graph.remove(node, safe=True)
            removed = True
            continue
        inputs, attributes = node.inputs, node.attributes.data
        if inputs and inputs[-1] is None:
            _shorten_inputs(node)
        if len(outputs) > 1 or "training_mode" in attributes:
            _shorten_outputs(node, opset)
        for block in blocks(node) if attributes else ():
            removed |= _remove_nodes(block, opset)
    return removed


def _shorten_inputs(node: ir.Node) -> None:
    count = len(node.inputs)
    while count and node.inputs[count - 1] is None:
        count -= 1
    node.resize_inputs(count)


def _shorten_outputs(node: ir.Node, opset: int) -> None:
    schema = None if node.domain else operator_schema(node.op_type, opset)
    if schema is None or any(parameter.variadic for parameter in schema.outputs):
        return
    if node.op_type == "BatchNormalization":
        training = node.attributes.get("training_mode")
        # Before opset 14, the number of outputs says whether it is training.
        if "training_mode" not in schema.attributes or (training is not None and training.as_int()):
            return
        node.attributes.pop("training_mode", None)
    for value, parameter in zip(node.outputs, schema.outputs, strict=False):
        if parameter.optional and not value.uses() and not value.is_graph_output():
            value.name = ""
    count = len(node.outputs)
    while count and not node.outputs[count - 1].name:
        count -= 1
    node.resize_outputs(count)

"""ONNX pass: removes nodes and initializers that nothing reads.

It does the same as onnx-ir's `common.RemoveUnusedNodesPass`, which looks up the schema of every node in onnx
and takes five times as long.

1. Nodes whose results nothing reads or returns, and initializers of the main graph, are removed. A node
   without outputs stays, such as an assertion of a custom domain, and so does a node whose sub-graph has one.
2. Optional outputs and inputs at the end of a node that are not used are left out.
3. BatchNormalization for inference has no attribute `training_mode`, and one output.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.arguments import blocks
from ....registration.schemas import operator_schema
from ..node_pass import remove_node
from ..pass_order import OnnxPass, Run


class RemoveUnused(OnnxPass):
    """Removes unused nodes and initializers of the main graph and its sub-graphs."""

    runs = (
        Run("none"),
        Run(
            "full",
            after={
                "WriteGemm": "Unused nodes would count as further readers, which prevent fusions.",
                "BroadcastLate": "It leaves the constants of masks unused.",
                "FoldPadding": "It leaves Pads unused.",
            },
            name="RemoveUnusedBeforeFusion",
            make=lambda _: RemoveUnused(initializers=False),
        ),
        Run(
            "basic",
            after={
                "ReadStoredWeights": "The weights that it reads in their stored layout leave copies unread.",
                "MergeEqualInitializers": "Weights that were merged are unread.",
                "SplitQuantizedProducts": "It leaves products without bias, whose old weights may be unread.",
            },
            name="RemoveUnusedAtEnd",
        ),
    )

    def __init__(self, initializers: bool = True, keeps_effects: bool = True):
        """Make the pass.

        Args:
            initializers: whether to remove initializers too; later passes may still need them.
            keeps_effects: whether nodes without outputs stay. Those of captured graphs are assertions, which
                ONNX does not have.
        """
        super().__init__()
        self._initializers = initializers
        self._keeps_effects = keeps_effects

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove nodes, then initializers, and report whether there were any."""
        removed = _remove_nodes(model.graph, model.opset_imports.get("", 0), self._keeps_effects)
        initializers = model.graph.initializers
        for name, value in list(initializers.data.items()) if self._initializers else ():
            if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                del initializers[name]
                removed = True
        return ir.passes.PassResult(model, removed)


def _remove_nodes(graph: ir.Graph, opset: int, keeps_effects: bool) -> bool:
    removed = False
    # From the end, so that the producers of what a removed node read come after it.
    for node in reversed(graph):
        outputs = node.outputs
        is_read = bool(outputs) and bool(outputs[0].uses())
        is_used = is_read or any(value.uses() or value.is_graph_output() for value in outputs)
        if not (is_used or (keeps_effects and _has_effects(node))):
            remove_node(node)
            removed = True
            continue
        inputs, attributes = node.inputs, node.attributes.data
        # Most nodes have nothing to shorten, and need no schema.
        if inputs and inputs[-1] is None:
            _shorten_inputs(node, opset)
        if outputs[1:] or "training_mode" in attributes:
            _shorten_outputs(node, opset)
        for block in blocks(node) if attributes else ():
            removed |= _remove_nodes(block, opset, keeps_effects)
    return removed


def _has_effects(node: ir.Node) -> bool:
    """Whether a node, or one in its sub-graphs, has no outputs and so acts outside of the graph."""
    if not node.outputs or (node.domain and not any(value.name for value in node.outputs)):
        return True
    inner = blocks(node) if node.attributes.data else ()
    return any(_has_effects(inner_node) for block in inner for inner_node in block)


def _shorten_inputs(node: ir.Node, opset: int) -> None:
    """Leave out omitted inputs at the end; a Loop needs its first two, also where both are omitted."""
    count, schema = len(node.inputs), None if node.domain else operator_schema(node.op_type, opset)
    minimum = 0 if schema is None else schema.minimum_inputs
    while count > minimum and node.inputs[count - 1] is None:
        count -= 1
    node.resize_inputs(count)


def _shorten_outputs(node: ir.Node, opset: int) -> None:
    schema = None if node.domain else operator_schema(node.op_type, opset)
    if schema is None or any(parameter.variadic for parameter in schema.outputs):
        return
    if node.op_type == "BatchNormalization":
        # Before opset 14 the node trains if it has more than one output.
        if "training_mode" not in schema.attributes or node.attributes.get_int("training_mode", 0) != 0:
            return
        node.attributes.pop("training_mode", None)
    for value, parameter in zip(node.outputs, schema.outputs, strict=False):
        if parameter.optional and not value.uses() and not value.is_graph_output():
            value.name = ""
    count = len(node.outputs)
    while count and not node.outputs[count - 1].name:
        count -= 1
    node.resize_outputs(count)

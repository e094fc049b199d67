"""ONNX pass: computes equal nodes once.

It does the same as onnx-ir's `common.CommonSubexpressionEliminationPass` in a fraction of the time, because
it reads attributes only of nodes with the same operator and inputs.

1. Nodes of a graph, or of a sub-graph, are equal if their operators, inputs, attributes and numbers of
   outputs are.
2. Not merged are nodes whose results may differ each time (random operators, and those of other domains),
   nodes with sub-graphs, and nodes with tensors of many elements as attributes.
3. A graph that returns the results of both nodes returns a copy of one.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.inference.tensor_sizes import element_count
from ....registration.schemas import operator_schema
from ..node_pass import IndexedPass, NodesByOperator
from ..pass_order import Run

_MAXIMUM_ELEMENTS = 10
"""Nodes with larger tensors as attributes are not compared."""
_LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class MergeEqualNodes(IndexedPass):
    """Removes nodes that compute what an earlier node computes."""

    runs = (
        Run(
            "basic",
            after={
                "RemoveUnused": "A node that nothing reads is removed, not merged.",
                "ShareSizes": "Reads of one size are equal only if they read one tensor.",
            },
        ),
        Run(
            "basic",
            after={
                "MergeShapesBehindScales": "Reshapes that were written in several steps are equal then.",
                "BroadcastNamed": "Values that were repeated differently are equal then.",
                "OmitLeadingOnes": "It leaves out axes that make a difference.",
            },
            name="MergeEqualNodesAtEnd",
        ),
    )

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Merge equal nodes of each graph, and report whether there were any."""
        opset = model.opset_imports.get("")
        # A sum, because `any` would stop at the first graph that changes.
        return sum(_merge_nodes(graph, opset) for graph in nodes.graphs) > 0


def _merge_nodes(graph: ir.Graph, opset: int | None) -> bool:
    graph_outputs = set(graph.outputs)
    first: dict[tuple[object, ...], ir.Node] = {}
    by_contents: dict[tuple[object, ...], ir.Node] = {}
    modified = False
    for node in list(graph):
        earlier = first.setdefault((node.op_type, node.inputs), node)
        if earlier is node:
            continue
        schema = None if node.domain or opset is None else operator_schema(node.op_type, opset)
        # Random operators have a seed; operators of other domains may be random too.
        if schema is None or "seed" in schema.attributes:
            continue
        for candidate in (earlier, node):
            contents = _contents(candidate)
            equal = node if contents is None else by_contents.setdefault(contents, candidate)
        returned = [output for output in node.outputs if output.is_graph_output()]
        # Identity, which copies what is returned twice, takes lists from opset 14 on only.
        if equal is not node and all(
            output in graph_outputs and not isinstance(output.type, (ir.SequenceType, ir.OptionalType))
            for output in returned
        ):
            _merge(graph, node, equal)
            modified = True
    return modified


def _contents(node: ir.Node) -> tuple[object, ...] | None:
    """A key that equal nodes share; None if a node has sub-graphs or large tensors."""
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        value = attribute.value
        if attribute.type in _GRAPHS:
            return None
        if attribute.type == ir.AttributeType.TENSOR:
            if element_count(value) > _MAXIMUM_ELEMENTS:
                return None
            value = value.dtype, value.shape.numpy(), value.numpy().tobytes()
        elif attribute.type in _LISTS:
            value = tuple(value)
        attributes.append((name, value))
    return node.op_identifier(), len(node.outputs), node.inputs, *attributes


def _merge(graph: ir.Graph, node: ir.Node, equal: ir.Node) -> None:
    """Replace the uses of a node by an equal one."""
    for value, replacement in zip(node.outputs, equal.outputs, strict=True):
        if value.is_graph_output():
            _return(graph, value, replacement, node)
        # The earlier node may be one of a form, whose shape is not inferred.
        replacement.type = replacement.type or value.type
        replacement.shape = value.shape if replacement.shape is None else replacement.shape
        value.replace_all_uses_with(replacement)
    graph.remove(node, safe=True)


def _return(graph: ir.Graph, value: ir.Value, replacement: ir.Value, node: ir.Node) -> None:
    """Replace an output of a graph by an equal value, under the name of the output."""
    for index, output in enumerate(graph.outputs):
        if output is not value:
            continue
        returned = replacement
        if replacement.is_graph_output():
            copy = ir.node("Identity", [replacement])
            returned = copy.outputs[0]
            returned.type, returned.shape = value.type, value.shape
            graph.insert_before(node, copy)
        returned.name = value.name
        graph.outputs[index] = returned

"""Target pass: computes equal nodes once.

It does what `common.CommonSubexpressionEliminationPass` of onnx-ir does, in a fraction of the time: it reads
attributes only where nodes of one operator read the same values.

1. Nodes of the main graph are equal if their operators, inputs, attributes and numbers of outputs are.
2. Nodes stay that may give other results each time (random operators, and those of other domains), that have
   sub-graphs, or that have tensors of many elements as attributes.
3. A graph that returns the results of both nodes returns a copy of one.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.inference.tensor_sizes import element_count
from ....registration.schemas import operator_schema

_MAXIMUM_ELEMENTS = 10
"""Nodes with larger tensors as attributes are not compared."""
_LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class MergeEqualNodes(ir.passes.InPlacePass):
    """Removes nodes that compute what an earlier node computes."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge equal nodes of the main graph, and report whether there were any."""
        graph, opset = model.graph, model.opset_imports.get("")
        own = set(graph.outputs)
        first: dict[tuple[object, ...], ir.Node] = {}
        known: dict[tuple[object, ...], ir.Node] = {}
        modified = False
        for node in list(graph):
            earlier = first.setdefault((node.op_type, node.inputs), node)
            if earlier is node or _may_differ(node, opset):
                continue
            for each in (earlier, node):
                contents = _contents(each)
                same = node if contents is None else known.setdefault(contents, each)
            if same is not node and all(each in own or not each.is_graph_output() for each in node.outputs):
                _merge(graph, node, same)
                modified = True
        return ir.passes.PassResult(model, modified)


def _contents(node: ir.Node) -> tuple[object, ...] | None:
    """What equal nodes have in common; None if a node has sub-graphs or large tensors."""
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


def _may_differ(node: ir.Node, opset: int | None) -> bool:
    """Whether a node may give another result each time it runs."""
    schema = None if node.domain or opset is None else operator_schema(node.op_type, opset)
    return schema is None or "seed" in schema.attributes


def _merge(graph: ir.Graph, node: ir.Node, same: ir.Node) -> None:
    """Let everything that reads a node read an equal one."""
    for value, kept in zip(node.outputs, same.outputs, strict=True):
        if value.is_graph_output():
            _return(graph, value, kept, node)
        value.replace_all_uses_with(kept)
    graph.remove(node, safe=True)


def _return(graph: ir.Graph, value: ir.Value, kept: ir.Value, node: ir.Node) -> None:
    """Replace an output of a graph by an equal value, under the name of the output."""
    for place, output in enumerate(graph.outputs):
        if output is not value:
            continue
        returned = kept
        if kept.is_graph_output():
            copy = ir.node("Identity", [kept])
            returned = copy.outputs[0]
            returned.type, returned.shape = value.type, value.shape
            graph.insert_before(node, copy)
        returned.name = value.name
        graph.outputs[place] = returned

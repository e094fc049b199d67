"""Makes fan-out explicit: a value with several readers is read by Identities, one for each of them.

1. Readers are nodes, by each input that they read the value with, and the graph's outputs.
2. If a value has several readers, each gets its own Identity; a reader that is an Identity needs none. The
   Identity of an output takes over the output's name. An output that is an input of the graph stays.
3. Weights and constants may have several readers: engines address them by name.
4. A node counts as one reader of the outer values that its sub-graphs read. The rules also apply inside.
"""

from __future__ import annotations

import onnx_ir as ir

from ...registration.arguments import blocks
from ..planning.order import captured_values
from .rewriting import Rewriter, constant_of, is_onnx

_Reader = tuple[ir.Node, int | None]
"""A node and the position of its input; the position is None for values that its sub-graphs read."""


class ExplicitFanOut(ir.passes.InPlacePass):
    """Inserts an Identity for each reader of a value that has several."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        return ir.passes.PassResult(model, _separate(Rewriter(model), model.graph))


def _separate(rewriter: Rewriter, graph: ir.Graph) -> bool:
    modified = False
    for value, readers in _readers(graph).items():
        # An output counts as one more reader.
        if len(readers) + (value in graph.outputs) < 2:
            continue
        for node, input_index in readers:
            # Also makes a second run change nothing.
            if is_onnx(node, "Identity"):
                continue
            with rewriter.before(node, value.name or "value") as g:
                copy = g.op("Identity", value)
                copy.type, copy.shape = value.type, value.shape
            if input_index is not None:
                node.replace_input_with(input_index, copy)
            else:
                _replace_inside(node, value, copy)
            modified = True
        producer = value.producer()
        if value in graph.outputs and producer is not None and producer.graph is graph:
            _separate_output(rewriter, graph, value)
            modified = True
    for node in list(graph):
        for block in blocks(node):
            modified |= _separate(rewriter, block)
    return modified


def _separate_output(rewriter: Rewriter, graph: ir.Graph, value: ir.Value) -> None:
    """Return an Identity of a value, under the value's name."""
    name = value.name or "value"
    value.name = rewriter.unique(f"{name}_shared")
    node = ir.node("Identity", [value], name=rewriter.unique(f"{name}/Identity"))
    copy = node.outputs[0]
    copy.name, copy.type, copy.shape = name, value.type, value.shape
    graph.append(node)
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = copy


def _readers(graph: ir.Graph) -> dict[ir.Value, list[_Reader]]:
    """For each value that is no constant, the nodes that read it, in the order of the graph."""
    readers_of: dict[ir.Value, list[_Reader]] = {}
    for node in graph:
        for input_index, value in enumerate(node.inputs):
            if value is not None and not _is_weight(value):
                readers_of.setdefault(value, []).append((node, input_index))
        for value in captured_values(node):
            if not _is_weight(value):
                readers_of.setdefault(value, []).append((node, None))
    return readers_of


def _is_weight(value: ir.Value) -> bool:
    return value.is_initializer() or (value.producer() is not None and constant_of(value) is not None)


def _replace_inside(node: ir.Node, value: ir.Value, copy: ir.Value) -> None:
    """Let everything in the sub-graphs of a node read a copy of an outer value."""
    for block in blocks(node):
        for inner in block:
            for index, read in enumerate(inner.inputs):
                if read is value:
                    inner.replace_input_with(index, copy)
            _replace_inside(inner, value, copy)
        for index, output in enumerate(block.outputs):
            if output is value:
                block.outputs[index] = copy

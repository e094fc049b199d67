"""Stores torch's decompositions in a source file, for nodes without a symbolic function at some opset.

Decomposing needs torch, but lowering a file must not. So the file contains the decomposition of each node at
each opset.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator

import onnx
import onnx_ir as ir

from ....registration import MAXIMUM_OPSET, MINIMUM_OPSET, ModelFileError, Registry
from ....registration.arguments import blocks, qualified_name
from ....registration.json_text import parse_json
from .fingerprint import fingerprint
from .graphs import GraphReader, GraphWriter
from .layout import DECOMPOSITION, SERVES, VERSION, check_fields, read_metadata, write_metadata

IsKnown = Callable[[ir.Node], bool]
_OPSETS = range(MINIMUM_OPSET, MAXIMUM_OPSET + 1)


@dataclasses.dataclass
class Decompositions:
    """The decompositions of nodes, by fingerprint of the node and opset."""

    graphs: dict[str, dict[int, ir.Graph]] = dataclasses.field(default_factory=dict)

    def at(self, opset: int) -> Callable[[ir.Node, IsKnown], ir.Graph | None]:
        """The function that decomposes nodes at an opset."""

        def decompose(node: ir.Node, is_known: IsKnown) -> ir.Graph | None:
            graphs_by_opset = self.graphs.get(fingerprint(node), {})
            # The registry may differ from that of the capturing process: a decomposition stored for another
            # opset serves too if this registry knows all its operators.
            order = [
                opset,
                *(stored_opset for stored_opset in sorted(graphs_by_opset) if stored_opset != opset),
            ]
            candidates = [
                graphs_by_opset[stored_opset] for stored_opset in order if stored_opset in graphs_by_opset
            ]
            return next((graph for graph in candidates if all(is_known(inner) for inner in graph)), None)

        return decompose


def collect(
    source: ir.Model, registry: Registry, decompose: Callable[[ir.Node, IsKnown], ir.Graph | None]
) -> Decompositions:
    """Collect the decompositions of nodes that lack a symbolic function at some opset."""
    decompositions = Decompositions()
    distinct: dict[str, ir.Node] = {}
    for node in nodes(source.graph):
        if any(registry.lookup(qualified_name(node), node.overload, opset) is None for opset in _OPSETS):
            distinct.setdefault(fingerprint(node), node)
    for opset in _OPSETS:

        def is_known(node: ir.Node, opset: int = opset) -> bool:
            return registry.lookup(qualified_name(node), node.overload, opset) is not None

        for key, node in distinct.items():
            graph = None if is_known(node) else decompose(node, is_known)
            if graph is not None:
                decompositions.graphs.setdefault(key, {})[opset] = graph
    return decompositions


def nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and of its sub-graphs."""
    for node in graph:
        yield node
        for block in blocks(node):
            yield from nodes(block)


def write_decompositions(decompositions: Decompositions) -> Iterator[onnx.FunctionProto]:
    """Write a function for each distinct decomposition, with the nodes and opsets that it is for."""
    functions: dict[bytes, onnx.FunctionProto] = {}
    served_nodes: dict[bytes, list[list[object]]] = {}
    for key, by_opset in sorted(decompositions.graphs.items()):
        for opset, graph in sorted(by_opset.items()):
            message = onnx.GraphProto()
            GraphWriter(graph).write(message)
            content = message.SerializeToString(deterministic=True)
            # Most nodes have the same decomposition at every opset: store each distinct one once.
            if content not in functions:
                functions[content] = _make_function(f"{json.loads(key)[0]}/{len(functions)}", message)
            entries = served_nodes.setdefault(content, [])
            if not entries or entries[-1][0] != key:
                entries.append([key, []])
            entries[-1][1].append(opset)  # type: ignore[attr-defined]
    for content, function in functions.items():
        table = json.dumps(served_nodes[content], separators=(",", ":"), ensure_ascii=False)
        write_metadata(function.metadata_props, {}, {SERVES: table})
        yield function


def _make_function(name: str, graph: onnx.GraphProto) -> onnx.FunctionProto:
    # A FunctionProto has neither initializers nor types of inputs, so a node's attribute contains the graph.
    function = onnx.FunctionProto(name=name, domain=DECOMPOSITION)
    function.opset_import.add(domain=DECOMPOSITION, version=VERSION)
    node = function.node.add(op_type="Decomposition", domain=DECOMPOSITION)
    attribute = node.attribute.add(name="graph", type=onnx.AttributeProto.GRAPH)
    attribute.g.CopyFrom(graph)
    return function


def read_decompositions(functions: Iterable[onnx.FunctionProto]) -> Decompositions:
    """Read the decompositions that `write_decompositions` wrote.

    Raises:
        ModelFileError: a function is not a decomposition.
    """
    decompositions = Decompositions()
    for function in functions:
        check_fields(function)
        attributes = [attribute for node in function.node for attribute in node.attribute]
        if function.domain != DECOMPOSITION or len(attributes) != 1:
            raise ModelFileError(
                f"function '{function.domain}::{function.name}' is not part of the source format"
            )
        graph = GraphReader().read_graph(attributes[0].g)
        _, format_metadata = read_metadata(function.metadata_props)
        for key, opsets in parse_json(format_metadata.get(SERVES, "[]")):
            for opset in opsets:
                decompositions.graphs.setdefault(key, {})[opset] = graph
    return decompositions

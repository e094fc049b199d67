"""The execution order of a graph."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import onnx_ir as ir

from ...registration import GraphError
from ...registration.arguments import blocks


def execution_order(graph: ir.Graph, ranks: Mapping[ir.Node, tuple[int, ...]] | None = None) -> list[ir.Node]:
    """Return the nodes in topological order; ties keep the order of the graph.

    A node comes after all values that its sub-graphs read.

    Args:
        ranks: break ties by the lowest rank instead.

    Raises:
        GraphError: nodes depend on each other.
    """
    nodes = list(graph)
    position = {node: index for index, node in enumerate(nodes)}
    missing = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        makers = {value.producer() for value in reads(node)}
        for maker in makers:
            if maker in position and maker is not node:
                readers[position[maker]].append(index)
                missing[index] += 1
    keys = [((ranks or {}).get(node, ()), index) for index, node in enumerate(nodes)]
    ready = [key for key, count in zip(keys, missing, strict=True) if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, keys[reader])
    if len(ordered) < len(nodes):
        held = next(node for node in nodes if missing[position[node]])
        raise GraphError(f"the graph has a cycle: node '{held.name}' reads a value that depends on it")
    return ordered


def reads(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node, and the outer values that its sub-graphs read."""
    return [value for value in node.inputs if value is not None] + captured(node)


def captured(node: ir.Node) -> list[ir.Value]:
    """Return the outer values that the sub-graphs of a node read, without duplicates."""
    own: set[ir.Value] = set()
    found: dict[ir.Value, None] = {}
    pending = blocks(node)
    while pending:
        block = pending.pop(0)
        own.update((*block.inputs, *block.initializers.values()))
        for inner in block:
            own.update(inner.outputs)
            found.update(dict.fromkeys(value for value in inner.inputs if value is not None))
            pending += blocks(inner)
        found.update(dict.fromkeys(block.outputs))
    return [value for value in found if value not in own]

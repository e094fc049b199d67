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
        # A set, because a node that reads a value twice waits for its producer once.
        for producer in {value.producer() for value in reads(node)}:
            if producer in position and producer is not node:
                readers[position[producer]].append(index)
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
        blocked = next(node for node in nodes if missing[position[node]])
        raise GraphError(f"the graph has a cycle: node '{blocked.name}' reads a value that depends on it")
    return ordered


def reads(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a node, and the outer values that its sub-graphs read."""
    return [value for value in node.inputs if value is not None] + captured_values(node)


def captured_values(node: ir.Node) -> list[ir.Value]:
    """Return the outer values that the sub-graphs of a node read, without duplicates."""
    inner_values: set[ir.Value] = set()
    read_values: dict[ir.Value, None] = {}
    pending = blocks(node)
    while pending:
        block = pending.pop(0)
        inner_values.update((*block.inputs, *block.initializers.values()))
        for inner in block:
            inner_values.update(inner.outputs)
            read_values.update(dict.fromkeys(value for value in inner.inputs if value is not None))
            pending += blocks(inner)
        read_values.update(dict.fromkeys(block.outputs))
    return [value for value in read_values if value not in inner_values]

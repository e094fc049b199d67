"""Finds the nodes that replace a node of a file, and gives them its name and metadata."""

from __future__ import annotations

import itertools

import onnx_ir as ir


def last_node(graph: ir.Graph) -> ir.Node | None:
    """Return the last node of a graph; None if it has none."""
    return graph[-1] if len(graph) else None


def nodes_after(graph: ir.Graph, before: ir.Node | None) -> list[ir.Node]:
    """Return the nodes of a graph after `before`, in order; all nodes if it is None."""
    nodes = list(itertools.takewhile(lambda node: node is not before, reversed(graph)))
    return nodes[::-1]


def describe(nodes: list[ir.Node], node: ir.Node, used_names: set[str]) -> None:
    """Give the nodes that replace a node its metadata, and the last one its name.

    Args:
        used_names: the names given so far; each name is given only once.
    """
    if nodes and node.name and node.name not in used_names:
        used_names.add(node.name)
        nodes[-1].name = node.name
        nodes[-1].doc_string = node.doc_string
    for replacement in nodes:
        for key, text in node.metadata_props.items():
            replacement.metadata_props.setdefault(key, text)

"""The graphs of a message: those that are given, and those in the attributes of their nodes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def with_subgraphs(*graphs: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Graphs and the graphs within them, at any depth, without a call for each level."""
    pending = list(graphs)
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)

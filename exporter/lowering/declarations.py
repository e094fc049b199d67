"""Adds declarations of types and shapes to a message before its shape inference is repeated."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from ..files.reading.subgraphs import with_subgraphs


def with_declarations(
    model: onnx.ModelProto, infos_by_graph: Sequence[Sequence[onnx.ValueInfoProto]]
) -> onnx.ModelProto | None:
    """Return a copy of a model with further declarations; None if there are none.

    Args:
        infos_by_graph: for each graph, in the order of `with_subgraphs`, the declarations. They replace those
            of the same values.
    """
    if not any(infos_by_graph):
        return None
    declared = onnx.ModelProto()
    declared.CopyFrom(model)
    for graph, infos in zip(with_subgraphs(declared.graph), infos_by_graph, strict=True):
        stated = {info.name: info for info in (*graph.value_info, *graph.output)}
        for info in infos:
            (stated.get(info.name) or graph.value_info.add()).CopyFrom(info)
    return declared

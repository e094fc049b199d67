"""Gives shape inference the ranks that follow from the lengths of computed shapes.

onnx infers nothing for a Reshape to a shape that it cannot compute, as in every transformer with dynamic
sizes that torch.onnx wrote. The length of this shape tensor is the rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from ...registration.inference.constant_integers import MAXIMUM_RANK


def with_known_ranks(model: onnx.ModelProto, inferred: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy of a model with ranks that inference did not find; None if there are none.

    Skips sub-graphs: before opset 11 such a Reshape hides that the branches of an If have unequal ranks.

    Args:
        model: the model before inference.
        inferred: the model after inference.
    """
    infos = list(_missing_ranks(inferred.graph))
    if not infos:
        return None
    ranked = onnx.ModelProto()
    ranked.CopyFrom(model)
    stated = {info.name: info for info in (*ranked.graph.value_info, *ranked.graph.output)}
    for info in infos:
        (stated.get(info.name) or ranked.graph.value_info.add()).CopyFrom(info)
    return ranked


def _missing_ranks(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield declarations, with unknown sizes, of results whose rank is the length of a Reshape's shape."""
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type != "Reshape" or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            continue
        result, target = infos.get(node.output[0]) if node.output else None, infos.get(node.input[1])
        if result is None or target is None or not result.type.tensor_type.elem_type:
            continue
        sizes = target.type.tensor_type.shape.dim
        if result.type.tensor_type.HasField("shape") or len(sizes) != 1 or not sizes[0].HasField("dim_value"):
            continue
        rank = sizes[0].dim_value
        if 0 <= rank <= MAXIMUM_RANK:
            info = onnx.ValueInfoProto()
            info.CopyFrom(result)
            info.type.tensor_type.shape.SetInParent()
            for _ in range(rank):
                info.type.tensor_type.shape.dim.add()
            yield info

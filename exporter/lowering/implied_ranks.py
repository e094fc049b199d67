"""Gives shape inference the ranks that it does not conclude itself.

onnx infers nothing for a Reshape to a shape that it cannot compute, as in every transformer with dynamic
sizes that torch.onnx wrote; the length of this shape tensor is the rank. Nor does it for a convolution of an
image of unknown rank, as behind the If of a scripted `squeeze`; the rank is that of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from ...registration.inference.constant_integers import MAXIMUM_RANK
from ..files.reading.subgraphs import with_subgraphs
from .declarations import with_declarations

_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose")


def with_known_ranks(model: onnx.ModelProto, inferred: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy of a model with ranks that inference did not find; None if there are none.

    Args:
        model: the model before inference.
        inferred: the model after inference.
    """
    graphs = list(with_subgraphs(inferred.graph))
    ranks = {tensor.name: len(tensor.dims) for graph in graphs for tensor in graph.initializer}
    return with_declarations(
        model,
        [
            [*_of_convolutions(graph, ranks), *(_of_reshapes(graph) if graph is inferred.graph else ())]
            for graph in graphs
        ],
    )


def _of_convolutions(graph: onnx.GraphProto, ranks: Mapping[str, int]) -> Iterator[onnx.ValueInfoProto]:
    """Yield declarations of results of convolutions, with the ranks of their weights."""
    nodes = [node for node in graph.node if node.op_type in _CONVOLUTIONS and _is_standard(node)]
    infos = {info.name: info for info in (*graph.value_info, *graph.output)} if nodes else {}
    for node in nodes:
        result = infos.get(node.output[0])
        rank = ranks.get(node.input[1])
        if rank is not None and result is not None and _lacks_shape(result):
            yield _with_rank(result, rank)


def _of_reshapes(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield declarations of results whose rank is the length of a Reshape's shape.

    Not for sub-graphs: before opset 11 such a Reshape hides that the branches of an If have unequal ranks.
    """
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type != "Reshape" or not _is_standard(node):
            continue
        result, target = infos.get(node.output[0]), infos.get(node.input[1])
        if result is None or target is None or not _lacks_shape(result):
            continue
        sizes = target.type.tensor_type.shape.dim
        if len(sizes) == 1 and sizes[0].HasField("dim_value") and 0 <= sizes[0].dim_value <= MAXIMUM_RANK:
            yield _with_rank(result, sizes[0].dim_value)


def _is_standard(node: onnx.NodeProto) -> bool:
    """Whether a node is of ONNX's own domain, and has at least two inputs and a result."""
    return node.domain in ("", "ai.onnx") and len(node.input) >= 2 and len(node.output) > 0


def _lacks_shape(info: onnx.ValueInfoProto) -> bool:
    tensor = info.type.tensor_type
    return bool(tensor.elem_type) and not tensor.HasField("shape")


def _with_rank(info: onnx.ValueInfoProto, rank: int) -> onnx.ValueInfoProto:
    """A declaration of the same type with unknown sizes."""
    ranked = onnx.ValueInfoProto()
    ranked.CopyFrom(info)
    ranked.type.tensor_type.shape.SetInParent()
    for _ in range(rank):
        ranked.type.tensor_type.shape.dim.add()
    return ranked

"""Describes a TensorFlow file as plain data for tables and JSON."""

import collections
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...files.reading import bounds_of
from .element_types import onnx_type
from .graph_reading import GraphFile, read_graph
from .messages import NodeDef, TensorInfo, TensorShapeProto
from .node_messages import OPTIONAL_PLACEHOLDER, PLACEHOLDERS, parse_result_name
from .recognition import file_of

_PLACEHOLDERS = PLACEHOLDERS | {OPTIONAL_PLACEHOLDER}


def describe_graph(path: str | os.PathLike[str], *, trusted: bool = False) -> dict[str, Any]:
    """Describe a GraphDef, MetaGraph or SavedModel: inputs, outputs, signatures, operators, constants.

    Inputs are those of the signature, or the placeholders; outputs those of the signature, or the nodes that
    no node reads.

    Args:
        trusted: see `opsetta.load`.

    Raises:
        ModelFileError: see `read_graph`.
    """
    graph_file = read_graph(path, need_signature=False, bounds=bounds_of(trusted))
    graph = graph_file.graph_def
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    operators = collections.Counter(node.op for nodes in bodies for node in nodes)
    constants = [
        node.attr["value"].tensor.ByteSize() for nodes in bodies for node in nodes if node.op == "Const"
    ]
    meta_graph, checkpoint = graph_file.meta_graph, graph_file.checkpoint_prefix
    version = meta_graph.meta_info_def.tensorflow_version if meta_graph is not None else ""
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(file_of(path)),
        "kind": graph_file.file_type,
        "form": graph_file.encoding,
        "producer": f"TensorFlow {version}" if version else f"GraphDef version {graph.versions.producer}",
        "inputs": list(_inputs(graph_file)),
        "outputs": list(_outputs(graph_file)),
        "signature": graph_file.signature,
        "signatures": sorted(meta_graph.signature_def) if meta_graph is not None else [],
        "tags": list(meta_graph.meta_info_def.tags) if meta_graph is not None else [],
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "nodes": operators.total(),
        "functions": len(graph.library.function),
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "constants": {"count": len(constants), "bytes": sum(constants)},
    }


def _inputs(graph_file: GraphFile) -> Iterator[dict[str, Any]]:
    if graph_file.signature is not None:
        yield from _signature_values(graph_file.meta_graph.signature_def[graph_file.signature].inputs)
        return
    for node in graph_file.graph_def.node:
        if node.op in _PLACEHOLDERS:
            shape = node.attr["shape"].shape if "shape" in node.attr else None
            yield _value(node.name, node.attr["dtype"].type if "dtype" in node.attr else 0, shape)


def _outputs(graph_file: GraphFile) -> Iterator[dict[str, Any]]:
    if graph_file.signature is not None:
        yield from _signature_values(graph_file.meta_graph.signature_def[graph_file.signature].outputs)
        return
    nodes = graph_file.graph_def.node
    read_names = {parse_result_name(text.removeprefix("^")).node for node in nodes for text in node.input}
    for node in nodes:
        if node.name not in read_names and node.op not in ("NoOp", "Const", *_PLACEHOLDERS):
            yield _value(node.name, _first_type(graph_file, node), None)


def _signature_values(tensors: Mapping[str, TensorInfo]) -> list[dict[str, Any]]:
    return [_value(name, info.dtype, info.tensor_shape) for name, info in sorted(tensors.items())]


def _first_type(graph_file: GraphFile, node: NodeDef) -> int:
    """The element type of a node's first output, by the operator's definition; 0 if unknown."""
    definition = graph_file.definitions(node.op)
    if definition is None or not definition.output_arg:
        return 0
    output = definition.output_arg[0]
    return output.type or (node.attr[output.type_attr].type if output.type_attr in node.attr else 0)


def _value(name: str, number: int, shape: TensorShapeProto | None) -> dict[str, Any]:
    element_type = onnx_type(number) if number else "unknown"
    sizes = None
    if shape is not None and not shape.unknown_rank:
        sizes = [dimension.size if dimension.size >= 0 else None for dimension in shape.dim]
    return {
        "name": name,
        "type": element_type if isinstance(element_type, str) else element_type.name,
        "shape": sizes,
    }

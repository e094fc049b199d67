"""Estimates the memory of a model from its message, before the model is built."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from .....registration import ModelFileError
from ..bounds import BOUNDS, REMEDY, Bounds
from ..subgraphs import with_subgraphs

PROPORTION = 3
"""The bytes of memory that a model may take for each byte of its file."""
_NODE = 1_200
"""Bytes of a node, in the message and in onnx-ir."""
_INPUT, _OUTPUT = 150, 450
_ATTRIBUTE = 600
_ELEMENT = 80
"""Bytes of a number or string in an attribute, and of a dimension."""
_GRAPH = 4_000
_VALUE = 700
"""Bytes of a declared value: an input, an output, an initializer."""
_ENTRY = 250
"""Bytes of a domain or an entry of metadata."""


def check_memory(model: onnx.ModelProto, bounds: Bounds = BOUNDS) -> None:
    """Refuse a model that takes much more memory than its file.

    A node takes at least seven bytes in a file, and two hundred times that in memory.

    Raises:
        ModelFileError: the model is too large. The message has both sizes.
    """
    size = model.ByteSize()
    allowed = bounds.memory + PROPORTION * size
    needed_bytes = _ENTRY * (len(model.metadata_props) + len(model.opset_import))
    for part_bytes in _parts(model):
        needed_bytes += part_bytes
        if needed_bytes > allowed:
            raise ModelFileError(
                f"the model would take more than {allowed >> 20} MiB in memory, the limit for a file of "
                f"{size} bytes; {REMEDY}"
            )


def _parts(model: onnx.ModelProto) -> Iterator[int]:
    """Yield the bytes of graphs, values, nodes and attributes."""
    for info in model.training_info:
        yield from _graphs(info.initialization)
        yield from _graphs(info.algorithm)
    for function in model.functions:
        yield _VALUE * len(function.input) + _ENTRY * len(function.opset_import)
        yield from _graphs(function)
    yield from _graphs(model.graph)


def _graphs(body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[int]:
    for graph in with_subgraphs(body):
        yield _GRAPH + _ENTRY * len(graph.metadata_props)
        yield from map(_value, graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            yield _VALUE * (len(graph.initializer) + len(graph.sparse_initializer))
            yield _VALUE * len(graph.quantization_annotation)
            yield from map(_value, graph.input)
            yield from map(_value, graph.output)
        for node in graph.node:
            yield (
                _NODE
                + _INPUT * len(node.input)
                + _OUTPUT * len(node.output)
                + _ENTRY * len(node.metadata_props)
                + sum(map(_attribute, node.attribute))
            )


def _value(info: onnx.ValueInfoProto) -> int:
    return _VALUE + _ELEMENT * len(info.type.tensor_type.shape.dim) + _ENTRY * len(info.metadata_props)


def _attribute(attribute: onnx.AttributeProto) -> int:
    elements = len(attribute.ints) + len(attribute.floats) + len(attribute.strings)
    return _ATTRIBUTE + _ELEMENT * elements

"""How much memory a model takes, told from its message before the model is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from ....registration import ModelFileError

MEMORY = 180_000_000
"""Bytes that the model of a file may take, beside three for each byte of the file."""
PROPORTION = 3
_NODE = 1_500
"""Bytes of a node with one input and one output, in the message and in the intermediate representation."""
_NAME = 300
"""Bytes of each further input and output."""
_ATTRIBUTE = 400
_GRAPH = 4_000
_VALUE = 700
"""Bytes of a value that is stated: an input, an output, an initializer."""
_ENTRY = 150
"""Bytes of a domain or an entry of metadata."""


def check_memory(model: onnx.ModelProto) -> None:
    """Refuse a model that is much more in memory than in its file.

    A node takes seven bytes at least in a file, and two hundred times that in memory.

    Raises:
        ModelFileError: with both sizes.
    """
    size = model.ByteSize()
    allowed = MEMORY + PROPORTION * size
    taken = _ENTRY * (len(model.metadata_props) + len(model.opset_import))
    for part in _parts(model):
        taken += part
        if taken > allowed:
            raise ModelFileError(
                f"the model would take more than {allowed >> 20} MiB in memory, which is what is given to "
                f"{size} bytes"
            )


def _parts(model: onnx.ModelProto) -> Iterator[int]:
    """What each node and each value takes."""
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        yield _GRAPH + _ENTRY * len(graph.metadata_props)
        if isinstance(graph, onnx.GraphProto):
            yield _VALUE * (len(graph.input) + len(graph.output) + len(graph.initializer))
        yield _VALUE * len(graph.value_info)
        for node in graph.node:
            names = len(node.input) + len(node.output)
            yield _NODE + _NAME * max(0, names - 2) + _ENTRY * len(node.metadata_props)
            yield _ATTRIBUTE * len(node.attribute)
            pending.extend(_graphs(node.attribute))


def _graphs(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.GraphProto]:
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs

"""Estimates the memory that converting a model takes, before it is copied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from ....registration import GraphError, Limits
from ....registration.arguments import graphs_of
from ...files.reading import BOUNDS, REMEDY, TRUSTED, Bounds

PROPORTION = 2
"""Bytes that a conversion may take for each byte of the model's weights."""
_NODE = 3_600
"""Bytes of a node, in the model as read, as prepared and as converted, and in the messages between them."""
_INPUT, _OUTPUT = 500, 2_200
_ATTRIBUTE = 900
_ELEMENT = 200
"""Bytes of a number or string of an attribute, and of a dimension."""
_GRAPH = 20_000
"""Bytes of a graph. It takes less memory, but as much time as three nodes, and this also bounds time."""
_NAME, _OF_NAME = 100, 5
"""Characters of a typical name, and bytes for each further character, because messages repeat names."""
_VALUE = 2_500
"""Bytes of an input or initializer of a graph."""
_NEW_NODE = 2_300
"""Bytes of an additional node: conversion makes one node for each node of the model, and sometimes more."""
_BYTES_OF_MADE = 200
"""Bytes of weights and names in a file that may take as long as making one node."""
_MADE_OF_FOUR, _DIMENSIONS_OF_MADE = 5, 16
"""Made nodes that take as long as reading, preparing, copying and saving four nodes; and their dimensions."""
_WEIGHTS_OF_ELEMENT = 8
"""Bytes of weights required for each additional element of the constants that a source graph becomes."""
_PARTS_OF_SOURCES = 4
"""Parts of the limits on time: lowering a source graph takes one, reading its file the others."""
_UNITS, _BYTES_OF_UNIT = 15_000, 200
"""Units of work that a description of a file may take, and the bytes of the file for each further one."""
_EDGES_OF_UNIT, _UNITS_OF_GRAPH, _DIMENSIONS_OF_UNIT, _ATTRIBUTES_OF_UNIT = 8, 2, 8, 4
_LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)


def limits_of(model: ir.Model, bounds: Bounds = BOUNDS) -> Limits:
    """The limits on what the conversion of a model may make.

    Raises:
        GraphError: converting it takes more memory than its weights allow, or nodes have too many inputs.
    """
    weights = _weight_bytes(model)
    allowed_bytes = bounds.conversion + PROPORTION * weights
    nodes = used_bytes = dimensions = 0
    graphs = graphs_of(model.graph)
    _check_inputs(graphs, bounds)
    for graph in graphs:
        nodes += len(graph)
        for part in _bytes_of_parts(graph):
            used_bytes += part
            if used_bytes > allowed_bytes:
                raise GraphError(
                    f"converting the model would take more than {allowed_bytes >> 20} MiB, the limit for a "
                    f"model with {weights} bytes of weights; {REMEDY}"
                )
        for node in graph:
            dimensions += sum(len(value.shape) for value in node.outputs if value.shape is not None)
    by_time = bounds.made_nodes + (weights + _name_bytes(graphs)) // _BYTES_OF_MADE
    by_time -= nodes * _MADE_OF_FOUR // 4 + dimensions // _DIMENSIONS_OF_MADE
    by_memory = nodes + (allowed_bytes - used_bytes) // _NEW_NODE
    return Limits(bounds.made_elements, min(by_time, by_memory), REMEDY)


def limits_of_source(source: ir.Model, bounds: Bounds) -> Limits | None:
    """The limits on what lowering a source graph may make; None if its file is trusted."""
    if bounds is TRUSTED:
        return None
    weights = _weight_bytes(source)
    graphs = graphs_of(source.graph)
    _check_inputs(graphs, bounds)
    nodes = sum(map(len, graphs))
    elements = bounds.made_elements + weights // _WEIGHTS_OF_ELEMENT
    # A graph without weights reaches its limit at as many nodes; a higher limit would only take longer.
    counted_nodes = min(nodes, bounds.made_nodes // (_PARTS_OF_SOURCES - 1))
    made_nodes = (bounds.made_nodes + counted_nodes) // _PARTS_OF_SOURCES + weights // _BYTES_OF_MADE
    return Limits(elements, made_nodes, REMEDY)


def is_describable(model: ir.Model, size: int | None = None, factor: int = 1) -> bool:
    """Whether the time of a visit of all nodes of a model, such as an inference, is within the limits.

    Args:
        size: the bytes of its files; by default those of its weights and names.
        factor: how many times as much time as an inference takes.
    """
    graphs = graphs_of(model.graph)
    if size is None:
        size = _weight_bytes(model) + _name_bytes(graphs)
    units = sum(len(graph) + _UNITS_OF_GRAPH + len(graph.initializers) for graph in graphs)
    edges = dimensions = attributes = 0
    for graph in graphs:
        for node in graph:
            edges += len(node.inputs) + len(node.outputs)
            attributes += len(node.attributes.data)
            dimensions += sum(len(value.shape) for value in node.outputs if value.shape is not None)
    units += edges // _EDGES_OF_UNIT + dimensions // _DIMENSIONS_OF_UNIT + attributes // _ATTRIBUTES_OF_UNIT
    return factor * units <= _UNITS + size // _BYTES_OF_UNIT


def check_node_count(model: ir.Model, bounds: Bounds, factor: int, work: str) -> None:
    """Refuse work on a model of so many nodes that it takes long for the size of the weights.

    Args:
        factor: how many times as much time as an inference the work takes.
        work: what is done with the nodes, such as "plan".

    Raises:
        GraphError: the model is not trusted, and has too many nodes.
    """
    if bounds is not TRUSTED and not is_describable(model, factor=factor):
        nodes = [node for graph in graphs_of(model.graph) for node in graph]
        attributes = sum(len(node.attributes.data) for node in nodes)
        raise GraphError(
            f"the model has {len(nodes)} node{'s' * (len(nodes) != 1)} with {attributes} attributes, "
            f"too many to {work} for the size of its weights; {REMEDY}"
        )


def check_conversion_time(model: ir.Model, limits: Limits, bounds: Bounds) -> None:
    """Refuse a model of so many nodes that its conversion takes long, before it is prepared.

    Args:
        limits: what `limits_of` returned for the model.

    Raises:
        GraphError: the model is not trusted, and has too many nodes.
    """
    limits.spend(0)
    check_node_count(model, bounds, 1, "convert")


def _weight_bytes(model: ir.Model) -> int:
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)


def _name_bytes(graphs: Iterable[ir.Graph]) -> int:
    """The characters of the names of nodes and of the values that they read and write."""
    return sum(
        len(node.name or "")
        + sum(len(value.name or "") for value in (*node.inputs, *node.outputs) if value is not None)
        for graph in graphs
        for node in graph
    )


def _check_inputs(graphs: Iterable[ir.Graph], bounds: Bounds) -> None:
    """Refuse nodes of so many inputs that replacing the inputs one by one would take long."""
    squares = sum(len(node.inputs) ** 2 for graph in graphs for node in graph)
    if squares > bounds.squared_inputs:
        raise GraphError(
            f"nodes of the model have too many inputs to be converted: their squared numbers are {squares} "
            f"together, and {bounds.squared_inputs} are allowed, which is a node of "
            f"{math.isqrt(bounds.squared_inputs)} inputs; {REMEDY}"
        )


def _bytes_of_parts(graph: ir.Graph) -> Iterator[int]:
    """Yield the bytes of a graph, its values, nodes and attributes."""
    yield _GRAPH + _VALUE * (len(graph.inputs) + len(graph.initializers))
    for node in graph:
        yield _NODE + _INPUT * len(node.inputs) + _OUTPUT * len(node.outputs)
        names = (node.name, *(value.name for value in (*node.inputs, *node.outputs) if value is not None))
        yield _OF_NAME * sum(len(name) - _NAME for name in names if name and len(name) > _NAME)
        yield _ELEMENT * sum(len(value.shape) for value in node.outputs if value.shape is not None)
        for attribute in node.attributes.values():
            yield _ATTRIBUTE
            if attribute.type in _LISTS and not attribute.is_ref():
                yield _ELEMENT * len(attribute.value)

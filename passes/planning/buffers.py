"""The buffers of a graph: groups of values that share memory, and their lifetimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import MAY_OVERWRITE
from ..onnx_graph.inplace import memory_sharing
from .order import reads


@dataclasses.dataclass(eq=False)
class Buffer:
    """Memory for one or more values.

    Attributes:
        values: its values in the order of definition, including views and results computed in place.
        first: the index of the first node that writes it; 0 for an input of the graph.
        last: the index of the last node that reads or writes it; of the last node for an output of the graph.
    """

    values: list[ir.Value]
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the first value."""
        return self.values[0].name or ""


@dataclasses.dataclass
class GraphBuffers:
    """The buffers of a graph in an execution order.

    Attributes:
        nodes: the nodes in that order.
        buffers: in the order of their first use.
        of: the buffer of each value; weights and constants have none.
        views: input 0 of each node whose output 0 has the same bytes.
        in_place: the position of the overwritten input of each node that runs in place.
    """

    nodes: list[ir.Node]
    buffers: list[Buffer]
    of: dict[ir.Value, Buffer]
    views: dict[ir.Node, ir.Value]
    in_place: dict[ir.Node, int]


def buffers_of(
    graph: ir.Graph, nodes: Sequence[ir.Node], *, keeps_inputs: bool = False, overwrites: bool = True
) -> GraphBuffers:
    """The buffers of a graph whose nodes run in the given order.

    Views share the memory of their input. A node overwrites an operand if its annotation
    `opsetta.may_overwrite` allows it; the annotation is valid for this order. Values that a sub-graph reads
    count as read by its node, and have no buffer in the sub-graph.

    Args:
        keeps_inputs: whether inputs are needed until the end, because the graph is repeated and its results
            become the next inputs.
        overwrites: whether nodes overwrite operands.
    """
    memory = GraphBuffers(list(nodes), [], {}, {}, {})
    # Weights and constants live outside the planned memory; views of them do too.
    fixed = set(graph.initializers.values())
    for value in graph.inputs:
        if value not in fixed:
            _add(memory, value, 0)
    for index, node in enumerate(nodes):
        # A Constant's value belongs to the model, like an initializer.
        if node.domain in memory_sharing.STANDARD_DOMAINS and node.op_type == "Constant":
            fixed.update(node.outputs)
            continue
        for value in reads(node):
            if value in memory.of:
                memory.of[value].last = index
        for position, value in enumerate(node.outputs):
            if value.name:
                _define(memory, fixed, node, position, index, overwrites)
    for value in (*graph.outputs, *(graph.inputs if keeps_inputs else ())):
        if value in memory.of:
            memory.of[value].last = max(0, len(nodes) - 1)
    return memory


def _define(
    memory: GraphBuffers, fixed: set[ir.Value], node: ir.Node, position: int, index: int, overwrites: bool
) -> None:
    """Assign a buffer to output `position` of the node at `index`."""
    value = node.outputs[position]
    if position == 0 and _is_view(node):
        source = node.inputs[0]
        assert source is not None
        if source in fixed:
            memory.views[node] = source
            fixed.add(value)
            return
        if source in memory.of:
            memory.views[node] = source
            _join(memory, value, memory.of[source], index)
            return
    annotation = node.metadata_props.get(MAY_OVERWRITE, "") if overwrites else ""
    overwritten = (pair.split(":") for pair in annotation.split())
    input_index = {int(output): int(operand) for output, operand in overwritten}.get(position)
    operand = node.inputs[input_index] if input_index is not None else None
    if input_index is not None and operand is not None and operand in memory.of:
        memory.in_place[node] = input_index
        _join(memory, value, memory.of[operand], index)
        return
    _add(memory, value, index)


def _add(memory: GraphBuffers, value: ir.Value, index: int) -> None:
    memory.of[value] = Buffer([value], index, index)
    memory.buffers.append(memory.of[value])


def _join(memory: GraphBuffers, value: ir.Value, buffer: Buffer, index: int) -> None:
    buffer.values.append(value)
    buffer.last = index
    memory.of[value] = buffer


def _is_view(node: ir.Node) -> bool:
    """Whether output 0 always has the bytes of input 0; for Dropout, only outside of training."""
    source = node.inputs[0] if node.inputs else None
    return (
        source is not None
        and node.op_type != "Dropout"
        and node.domain in memory_sharing.STANDARD_DOMAINS
        and memory_sharing.is_view(node.op_type, source.dtype, node.outputs[0].dtype)
    )

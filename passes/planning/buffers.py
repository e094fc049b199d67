"""The buffers of a graph: groups of values that share memory, and their lifetimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import MAY_OVERWRITE
from ..onnx_graph.inplace import memory_sharing
from .order import reads
from .parts import PartRules, reserved_parts


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
        views: input 0 of each node whose results are in the memory of its operands already.
        in_place: the position of the overwritten input of each node that runs in place.
        offsets: where the values that do not begin with their buffer are in it, in bytes.
    """

    nodes: list[ir.Node]
    buffers: list[Buffer]
    of: dict[ir.Value, Buffer]
    views: dict[ir.Node, ir.Value]
    in_place: dict[ir.Node, int]
    offsets: dict[ir.Value, int] = dataclasses.field(default_factory=dict)


def buffers_of(
    graph: ir.Graph,
    nodes: Sequence[ir.Node],
    *,
    keeps_inputs: bool = False,
    overwrites: bool = True,
    parts: PartRules | None = None,
) -> GraphBuffers:
    """The buffers of a graph whose nodes run in the given order.

    Views share the memory of their input. A node overwrites an operand if its annotation
    `opsetta.may_overwrite` allows it; the annotation is valid for this order. Values that a sub-graph reads
    count as read by its node, and have no buffer in the sub-graph.

    Args:
        keeps_inputs: whether inputs are needed until the end, because the graph is repeated and its results
            become the next inputs.
        overwrites: whether nodes overwrite operands.
        parts: which values may be parts of others; None if none may.
    """
    while True:
        builder = _Builder(graph, nodes, overwrites, parts)
        memory = builder.build(keeps_inputs)
        # Memory of operands was reserved for a Concat that copies them after all.
        failed = {owner.producer() for owner, _ in builder.homes.values()} - memory.views.keys()
        if parts is None or not failed:
            return memory
        parts = dataclasses.replace(parts, copying={*parts.copying, *filter(None, failed)})


class _Builder:
    """Assigns buffers to the values of a graph in execution order."""

    def __init__(self, graph: ir.Graph, nodes: Sequence[ir.Node], overwrites: bool, parts: PartRules | None):
        self._graph, self._overwrites, self._parts = graph, overwrites, parts
        self._memory = GraphBuffers(list(nodes), [], {}, {}, {})
        # Weights and constants live outside the planned memory; views of them do too.
        self._fixed = set(graph.initializers.values())
        self._producers = set(nodes)
        self.homes = {} if parts is None else reserved_parts(nodes, parts, self._origin)
        self._owned: dict[ir.Value, Buffer] = {}
        self._later_reads = {} if parts is None else self._reads_of_bytes(parts)
        # The values of each buffer that may have readers later.
        self._unfinished: dict[Buffer, list[ir.Value]] = {}

    def build(self, keeps_inputs: bool) -> GraphBuffers:
        """The buffers."""
        memory, nodes, fixed = self._memory, self._memory.nodes, self._fixed
        for value in self._graph.inputs:
            if value not in fixed:
                self._add(value, 0)
        for index, node in enumerate(nodes):
            # A Constant's value belongs to the model, like an initializer.
            if node.domain in memory_sharing.STANDARD_DOMAINS and node.op_type == "Constant":
                fixed.update(node.outputs)
                continue
            for value in reads(node):
                if value in memory.of:
                    memory.of[value].last = index
            if self._share_parts(node, index):
                continue
            for position, value in enumerate(node.outputs):
                if value.name:
                    self._define(node, position, index)
        for value in (*self._graph.outputs, *(self._graph.inputs if keeps_inputs else ())):
            if value in memory.of:
                memory.of[value].last = max(0, len(nodes) - 1)
        return memory

    def _define(self, node: ir.Node, position: int, index: int) -> None:
        """Assign a buffer to output `position` of the node at `index`."""
        memory, value = self._memory, node.outputs[position]
        if position == 0 and _is_view(node):
            source = node.inputs[0]
            assert source is not None
            if source in self._fixed:
                memory.views[node] = source
                self._fixed.add(value)
                return
            if source in memory.of:
                memory.views[node] = source
                self._join(value, source, 0, index)
                return
        input_index = self._overwritten_input(node, position)
        operand = None if input_index is None else node.inputs[input_index]
        if input_index is not None and operand in memory.of and self._may_overwrite(operand, node, index):
            memory.in_place[node] = input_index
            self._join(value, operand, 0, index)
            return
        self._add(value, index)

    def _overwritten_input(self, node: ir.Node, position: int) -> int | None:
        """The input that output `position` of a node may overwrite according to its annotation."""
        annotation = node.metadata_props.get(MAY_OVERWRITE, "") if self._overwrites else ""
        pairs = (pair.split(":") for pair in annotation.split())
        return {int(output): int(operand) for output, operand in pairs}.get(position)

    def _share_parts(self, node: ir.Node, index: int) -> bool:
        """Let the results of a node share memory with its operands, if all of their bytes are there."""
        memory, parts = self._memory, self._parts
        if parts is None:
            return False
        source = node.inputs[0] if node.inputs else None
        pieces = parts.pieces(node)
        if pieces is not None and source is not None and source in memory.of:
            memory.views[node] = source
            for value, offset in zip(node.outputs, pieces, strict=True):
                self._join(value, source, offset, index)
            return True
        joints = parts.joints(node)
        if joints is None or source is None or source not in memory.of:
            return False
        buffer, base = memory.of[source], memory.offsets.get(source, 0)
        if parts.next_values.get(buffer.values[0], node.outputs[0]) is not node.outputs[0]:
            return False
        for operand, offset in zip(node.inputs, joints, strict=True):
            if operand is None or memory.of.get(operand) is not buffer:
                return False
            if memory.offsets.get(operand, 0) != base + offset:
                return False
        memory.views[node] = source
        self._join(node.outputs[0], source, 0, index)
        return True

    def _origin(self, value: ir.Value) -> ir.Value | None:
        """The value that brings the memory of a value; None if it is no result, or a part of another."""
        while True:
            node = value.producer()
            if node is None or node not in self._producers or value in self._fixed:
                return None
            if node.op_type == "Constant" or (
                self._parts is not None and self._parts.pieces(node) is not None
            ):
                return None
            is_first = value is node.outputs[0]
            position = (
                0 if is_first and _is_view(node) else self._overwritten_input(node, 0 if is_first else -1)
            )
            if position is None:
                return value
            operand = node.inputs[position]
            assert operand is not None
            value = operand

    def _reads_of_bytes(self, parts: PartRules) -> dict[ir.Value, list[tuple[int, int, int]]]:
        """For each value the nodes that read it, in order, and the bytes of it that they read."""
        end = len(self._memory.nodes)
        ranges: dict[ir.Value, list[tuple[int, int, int]]] = {}
        for index, node in enumerate(self._memory.nodes):
            pieces = parts.pieces(node)
            if pieces is not None and node.inputs[0] is not None:
                # Who reads a piece later is a reader of the piece.
                for output, offset in zip(node.outputs, pieces, strict=True):
                    entry = index, offset, offset + (parts.bytes_of(output) or 0)
                    ranges.setdefault(node.inputs[0], []).append(entry)
                continue
            for value in reads(node):
                ranges.setdefault(value, []).append((index, 0, parts.bytes_of(value) or 0))
        for value in (*self._graph.outputs, *parts.protected):
            ranges.setdefault(value, []).append((end, 0, parts.bytes_of(value) or 0))
        return ranges

    def _may_overwrite(self, operand: ir.Value, node: ir.Node, index: int) -> bool:
        """Whether nothing reads the memory of an operand after the node at `index`, or beside it."""
        memory, parts = self._memory, self._parts
        if parts is None:
            return True
        buffer, begin = memory.of[operand], memory.offsets.get(operand, 0)
        end = begin + (parts.bytes_of(operand) or 0)
        # Nodes are visited in order, so a value that has no later reader never gets one.
        later_reads = self._later_reads
        self._unfinished[buffer] = [
            value
            for value in self._unfinished[buffer]
            if value in later_reads and later_reads[value][-1][0] >= index
        ]
        for value in self._unfinished[buffer]:
            base = memory.offsets.get(value, 0)
            # The last readers first: they decide in most cases.
            for reader, first, last in reversed(later_reads[value]):
                overlaps = max(begin, base + first) < min(end, base + last)
                if overlaps and (reader > index or (reader == index and value is not operand)):
                    return False
        return True

    def _add(self, value: ir.Value, index: int) -> None:
        memory = self._memory
        owner, offset = self.homes.get(value, (value, 0))
        buffer = self._owned.get(owner)
        if buffer is None:
            buffer = self._owned[owner] = Buffer([], index, index)
            memory.buffers.append(buffer)
        self._put(value, buffer, offset, index)

    def _join(self, value: ir.Value, source: ir.Value, offset: int, index: int) -> None:
        memory = self._memory
        self._put(value, memory.of[source], memory.offsets.get(source, 0) + offset, index)

    def _put(self, value: ir.Value, buffer: Buffer, offset: int, index: int) -> None:
        buffer.values.append(value)
        self._unfinished.setdefault(buffer, []).append(value)
        buffer.last = max(buffer.last, index)
        self._memory.of[value] = buffer
        if offset:
            self._memory.offsets[value] = offset


def _is_view(node: ir.Node) -> bool:
    """Whether output 0 always has the bytes of input 0; for Dropout, only outside of training."""
    source = node.inputs[0] if node.inputs else None
    return (
        source is not None
        and node.op_type != "Dropout"
        and node.domain in memory_sharing.STANDARD_DOMAINS
        and memory_sharing.is_view(node.op_type, source.dtype, node.outputs[0].dtype)
    )

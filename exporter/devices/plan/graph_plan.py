"""Plans the memory of one graph, and of the sub-graphs of its nodes.

The buffers of a sub-graph are in the workspace of its node: a buffer of the enclosing graph that is alive
while the node runs. The branches of an If share a workspace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ....passes.onnx_graph.inplace.memory_sharing import STANDARD_DOMAINS
from ....passes.planning import (
    FORWARD,
    Buffer,
    GraphBuffers,
    Interval,
    PartRules,
    align,
    assign_offsets,
    buffers_of,
    lower_bound,
)
from ....passes.planning.order import captured_values
from ....registration import PlanError
from ....registration.arguments import qualified_name
from .records import WORKSPACE, PlannedBody, PlannedBuffer, PlannedGraph, PlannedNode
from .value_bytes import Dimensions, Size, bytes_of

_REPEATING = ("Loop", "Scan")
_MOST_BYTES = 2**63 - 1
"""The largest sum of sizes, because plan files and C use signed 64-bit integers."""


def plan_graph(
    graph: ir.Graph,
    nodes: Sequence[ir.Node],
    dimensions: Dimensions,
    alignment: int,
    phases: Mapping[str, str],
    *,
    repeats: bool = False,
    parts: PartRules | None = None,
) -> PlannedGraph:
    """Plan a graph whose nodes run in the given order.

    Args:
        phases: the phase of each node, by name.
        repeats: whether the graph runs several times on its own results, as the body of a Loop does.
        parts: rules for values that may be stored as parts of others; None if none may.

    Raises:
        PlanError: the size of a value is unknown before the model runs, or the sum of sizes is too large.
    """
    memory = buffers_of(graph, nodes, keeps_inputs=repeats, parts=parts)
    bodies = [
        body
        for index, node in enumerate(nodes)
        for body in _bodies(node, index, dimensions, alignment, phases)
    ]
    workspaces = _workspaces(bodies)
    described = [_describe_buffers(graph, memory, buffer, dimensions) for buffer in memory.buffers]
    buffers = [buffer for buffer, _ in described]
    buffers += [
        PlannedBuffer(_workspace_name(nodes[index]), None, size, (index, index), (), WORKSPACE)
        for index, (size, _) in workspaces.items()
    ]
    buffers.sort(key=lambda buffer: buffer.lifetime[0])
    intervals = [Interval(b.size, *b.lifetime) for b in buffers if isinstance(b.size, int)]
    peak = bound = None
    if len(intervals) == len(buffers) and all(b.unplanned or b.peak is not None for b in bodies):
        offsets = assign_offsets(intervals, alignment)
        # Offsets are aligned, so every size is rounded up to the alignment.
        rounded = [Interval(align(i.size, alignment), i.first, i.last) for i in intervals]
        peak = max((o + i.size for o, i in zip(offsets, rounded, strict=True)), default=0)
        if peak > _MOST_BYTES:
            raise PlanError(f"the values need {peak} bytes, more than a plan can state: {_MOST_BYTES}")
        bound = lower_bound(
            [
                # The plan of a workspace may need more than the lower bound of its sub-graph.
                interval._replace(size=workspaces[interval.first][1]) if b.kind == WORKSPACE else interval
                for b, interval in zip(buffers, rounded, strict=True)
            ]
        )
        buffers = [
            dataclasses.replace(buffer, offset=offset)
            for buffer, offset in zip(buffers, offsets, strict=True)
        ]
    offset_of = {buffer.name: buffer.offset for buffer in buffers}
    for whole, pieces in described:
        base = offset_of[whole.name]
        buffers += [
            piece if base is None else dataclasses.replace(piece, offset=base + (piece.offset or 0))
            for piece in pieces
        ]
    planned = [_node(memory, index, phases) for index in range(len(nodes))]
    return PlannedGraph(tuple(planned), tuple(buffers), tuple(bodies), peak, bound)


def _bodies(
    node: ir.Node, index: int, dimensions: Dimensions, alignment: int, phases: Mapping[str, str]
) -> Iterator[PlannedBody]:
    """Plan the sub-graphs of a node."""
    for name, attribute in node.attributes.items():
        if attribute.type != ir.AttributeType.GRAPH or attribute.is_ref():
            continue
        graph = attribute.as_graph()
        nodes = list(graph)
        inner_phases = dict.fromkeys(
            (inner_node.name or "" for inner_node in nodes), phases.get(node.name or "", FORWARD)
        )
        unplanned = None
        try:
            _check_operator(node, graph)
            body_plan = plan_graph(
                graph, nodes, dimensions, alignment, inner_phases, repeats=node.op_type in _REPEATING
            )
        except PlanError as error:
            unplanned = str(error)
            memory = buffers_of(graph, nodes)
            planned = [_node(memory, position, inner_phases) for position in range(len(nodes))]
            body_plan = PlannedGraph(tuple(planned), (), (), None, None)
        yield PlannedBody(
            **{field.name: getattr(body_plan, field.name) for field in dataclasses.fields(PlannedGraph)},
            node=index,
            attribute=name,
            buffer=_workspace_name(node) if body_plan.peak else None,
            inputs=_names(graph.inputs),
            outputs=_names(graph.outputs),
            unplanned=unplanned,
        )


def _check_operator(node: ir.Node, graph: ir.Graph) -> None:
    """Refuse an operator with sub-graphs whose execution is unknown."""
    if node.domain not in STANDARD_DOMAINS or node.op_type not in ("If", *_REPEATING):
        raise PlanError(f"{qualified_name(node)} has a sub-graph, but its semantics are unknown")
    if node.op_type == "Scan" and len(node.inputs) > len(graph.inputs):
        raise PlanError("Scan of opset 8 is not supported: convert the model to opset 9 or higher")


def _workspace_name(node: ir.Node) -> str:
    return f"{node.name}/workspace"


def _workspaces(bodies: Sequence[PlannedBody]) -> dict[int, tuple[int, int]]:
    """Return the largest peak and the largest lower bound of each node's sub-graphs that need memory."""
    workspaces: dict[int, tuple[int, int]] = {}
    for body in bodies:
        if body.peak:
            size, least = workspaces.get(body.node, (0, 0))
            workspaces[body.node] = max(size, body.peak), max(least, body.lower_bound or 0)
    return workspaces


def _node(memory: GraphBuffers, index: int, phases: Mapping[str, str]) -> PlannedNode:
    node = memory.nodes[index]
    overwritten_input = memory.in_place.get(node)
    return PlannedNode(
        index,
        node.name or "",
        node.domain,
        node.op_type,
        phases.get(node.name or "", FORWARD),
        _names(node.inputs),
        _names(node.outputs),
        {} if overwritten_input is None else {0: overwritten_input},
        node in memory.views,
        _names(captured_values(node)),
    )


def _names(values: Sequence[ir.Value | None]) -> tuple[str, ...]:
    return tuple("" if value is None else value.name or "" for value in values)


def _describe_buffers(
    graph: ir.Graph, memory: GraphBuffers, buffer: Buffer, dimensions: Dimensions
) -> tuple[PlannedBuffer, list[PlannedBuffer]]:
    """Return the record of a buffer without an offset, and records of its parts with offsets inside it."""
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    role = "input" if any(value in inputs for value in buffer.values) else "intermediate"
    if any(value in outputs for value in buffer.values) and role != "input":
        role = "output"
    lifetime = buffer.first, buffer.last
    size = buffer_size(buffer, memory, dimensions)
    extents: dict[tuple[int, Size], list[ir.Value]] = {}
    for value in buffer.values:
        length = bytes_of(value, dimensions)
        # Equal sizes may be different formulas, so only numbers, which parts always have, are compared.
        extent = memory.offsets.get(value, 0), length if isinstance(length, int) else size
        extents.setdefault(extent, []).append(value)
    whole_values = extents.pop((0, size))
    whole = PlannedBuffer(whole_values[0].name or "", None, size, lifetime, _names(whole_values), role)
    # A part has the lifetime of the whole, because nothing may overwrite it while the whole is needed.
    pieces = [
        PlannedBuffer(values[0].name or "", offset, length, lifetime, _names(values), role, whole.name)
        for (offset, length), values in extents.items()
    ]
    return whole, pieces


def buffer_size(buffer: Buffer, memory: GraphBuffers, dimensions: Dimensions) -> Size:
    """Return the bytes of a buffer up to the end of its last value; a formula if a size is one."""
    sizes = [bytes_of(value, dimensions) for value in buffer.values]
    ends = [
        memory.offsets.get(value, 0) + size
        for value, size in zip(buffer.values, sizes, strict=True)
        if isinstance(size, int)
    ]
    if len(ends) == len(sizes):
        return max(ends)
    return next(size for size in sizes if isinstance(size, str))

"""Reorders the nodes of a model so that its plan needs less memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ....passes.onnx_graph.inplace import memory_sharing
from ....passes.onnx_graph.inplace.annotations import annotate_inplace
from ....passes.planning import Interval, align, buffers_of, lower_bound
from ....passes.planning.memory_order import Step, find_order
from ....passes.planning.order import reads
from ....registration import PlanError
from ....registration.arguments import blocks
from .graph_plan import buffer_size, plan_graph
from .records import WORKSPACE
from .value_bytes import Dimensions, bytes_of


def reorder_for_memory(
    model: ir.Model, dimensions: Dimensions, alignment: int, consumed: Mapping[str, str] | None
) -> None:
    """Sort the nodes of a model's main graph anew if that lowers the memory of its plan.

    Without numbers for all sizes the order stays.

    Args:
        model: in execution order, with in-place annotations, which are written again.
        consumed: inputs that may be overwritten, with the outputs that are their next values; None if no node
            overwrites an operand.
    """
    graph = model.graph
    nodes = list(graph)
    workspaces = _workspaces(graph, nodes, dimensions, alignment)
    try:
        steps, sizes, initial, lasting = _problem(graph, nodes, workspaces, dimensions, alignment)
        if consumed is None:
            steps = [dataclasses.replace(step, overwrites=()) for step in steps]
    except PlanError:
        return
    order = find_order(steps, sizes, initial, lasting)
    if order is None:
        return
    before = _live_bytes(graph, nodes, workspaces, dimensions, alignment)
    _sort(graph, [nodes[number] for number in order])
    _annotate(model, consumed)
    # The search knows in-place results only roughly.
    if _live_bytes(graph, list(graph), workspaces, dimensions, alignment) >= before:
        _sort(graph, nodes)
        _annotate(model, consumed)


def _annotate(model: ir.Model, consumed: Mapping[str, str] | None) -> None:
    """Annotate the nodes for their order, unless no node overwrites an operand."""
    if consumed is not None:
        annotate_inplace(model, consumed)


def _sort(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    for node in nodes:
        graph.remove(node)
    graph.extend(nodes)


def _workspaces(
    graph: ir.Graph, nodes: Sequence[ir.Node], dimensions: Dimensions, alignment: int
) -> dict[ir.Node, int]:
    """The bytes that the sub-graphs of each node need."""
    if not any(blocks(node) for node in nodes):
        return {}
    planned = plan_graph(graph, nodes, dimensions, alignment, {})
    return {
        nodes[buffer.lifetime[0]]: buffer.size
        for buffer in planned.buffers
        if buffer.kind == WORKSPACE and isinstance(buffer.size, int)
    }


def _live_bytes(
    graph: ir.Graph,
    nodes: Sequence[ir.Node],
    workspaces: Mapping[ir.Node, int],
    dimensions: Dimensions,
    alignment: int,
) -> int:
    """The most bytes that are needed at one node."""
    intervals = [
        Interval(_align_number(buffer_size(buffer, dimensions), alignment), buffer.first, buffer.last)
        for buffer in buffers_of(graph, nodes).buffers
    ]
    positions = {node: index for index, node in enumerate(nodes)}
    intervals += [Interval(size, positions[node], positions[node]) for node, size in workspaces.items()]
    return lower_bound(intervals)


def _align_number(size: object, alignment: int) -> int:
    """A size in whole units of the alignment.

    Raises:
        PlanError: it is a formula.
    """
    if not isinstance(size, int):
        raise PlanError(f"the size {size} is a formula")
    return align(size, alignment)


def _problem(
    graph: ir.Graph,
    nodes: Sequence[ir.Node],
    workspaces: Mapping[ir.Node, int],
    dimensions: Dimensions,
    alignment: int,
) -> tuple[list[Step], list[int], frozenset[int], frozenset[int]]:
    """The nodes and values of a graph for `find_order`.

    Raises:
        PlanError: a size is a formula.
    """
    # Values in one buffer only because a node overwrites the other are separate here: the order decides.
    memory = buffers_of(graph, nodes, overwrites=False)
    buffers = {id(buffer): number for number, buffer in enumerate(memory.buffers)}
    sizes = [_align_number(buffer_size(buffer, dimensions), alignment) for buffer in memory.buffers]
    of = {value: buffers[id(buffer)] for value, buffer in memory.of.items()}
    positions = {node: index for index, node in enumerate(nodes)}
    lasting = frozenset(of[value] for value in graph.outputs if value in of)
    initial = frozenset(of[value] for value in graph.inputs if value in of)
    steps = []
    for node in nodes:
        values = reads(node)
        producers = (value.producer() for value in values)
        after = frozenset(positions[producer] for producer in producers if producer in positions)
        written = {of[value]: None for value in node.outputs if value in of}
        if node in memory.views:
            written.pop(of.get(node.outputs[0], -1), None)
        steps.append(
            Step(
                after,
                frozenset(of[value] for value in values if value in of),
                tuple(written),
                tuple(
                    of[value]
                    for value in _overwritable(node, graph, dimensions)
                    if value in of and of[value] not in initial and of[value] not in written
                ),
                workspaces.get(node, 0),
            )
        )
    return steps, sizes, initial, lasting


def _overwritable(node: ir.Node, graph: ir.Graph, dimensions: Dimensions) -> list[ir.Value]:
    """The operands that output 0 of a node may overwrite if nothing reads them later."""
    opset = graph.opset_imports.get("", 0)
    if node.domain not in memory_sharing.STANDARD_DOMAINS or not node.outputs or not node.outputs[0].name:
        return []
    result = node.outputs[0]
    return [
        value
        for position in memory_sharing.overwritable(node.op_type, opset, len(node.inputs))
        if (value := node.inputs[position]) is not None
        and value.dtype == result.dtype
        and value.producer() is not None
        and bytes_of(value, dimensions) == bytes_of(result, dimensions)
    ]

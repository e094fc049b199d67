"""Reorders the nodes of a model so that its plan needs less memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from .....passes.onnx_graph.inplace import memory_sharing
from .....passes.onnx_graph.inplace.annotations import annotate_inplace
from .....passes.planning import buffers_of
from .....passes.planning.memory_order import Step, find_order
from .....passes.planning.order import reads
from .....passes.planning.recomputation import is_lower
from .....registration import PlanError
from ..value_bytes import Dimensions, bytes_of
from .live_memory import MemoryModel


def reorder_for_memory(
    model: ir.Model, memory_model: MemoryModel, consumed: Mapping[str, str] | None
) -> None:
    """Reorder the nodes of a model's main graph, in place, if that lowers the memory of its plan.

    The order stays unless all sizes are numbers.

    Args:
        model: the model, in execution order, with in-place annotations, which are written again.
        consumed: by name of an input that may be overwritten, the output that is its next value; None if no
            node overwrites an operand.
    """
    graph = model.graph
    nodes = list(graph)
    try:
        steps, sizes, initial, lasting = _problem(graph, nodes, memory_model)
        if consumed is None:
            steps = [dataclasses.replace(step, overwrites=()) for step in steps]
    except PlanError:
        return
    order = find_order(steps, sizes, initial, lasting)
    if order is None:
        return
    before = memory_model.profile(graph)
    _sort(graph, [nodes[number] for number in order])
    _annotate(model, consumed)
    # The search only estimates in-place results, so the new order may need more memory.
    if not is_lower(memory_model.profile(graph), before):
        _sort(graph, nodes)
        _annotate(model, consumed)


def _annotate(model: ir.Model, consumed: Mapping[str, str] | None) -> None:
    """Write in-place annotations for the current order of nodes, unless `consumed` is None."""
    if consumed is not None:
        annotate_inplace(model, consumed)


def _sort(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    for node in nodes:
        graph.remove(node)
    graph.extend(nodes)


def _problem(
    graph: ir.Graph, nodes: Sequence[ir.Node], memory_model: MemoryModel
) -> tuple[list[Step], list[int], frozenset[int], frozenset[int]]:
    """Describe a graph for `find_order`: steps, sizes, and the values alive at the beginning and at the end.

    Raises:
        PlanError: a size is a formula.
    """
    # Values that share a buffer only by an in-place result count separately: the order decides about them.
    memory = buffers_of(graph, nodes, overwrites=False)
    buffers = {id(buffer): number for number, buffer in enumerate(memory.buffers)}
    workspaces, dimensions = memory_model.workspaces, memory_model.dimensions
    sizes = [interval.size for interval in memory_model.intervals(memory)[: len(buffers)]]
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
                    for value in overwritable_operands(node, graph, dimensions)
                    if value in of and of[value] not in initial and of[value] not in written
                ),
                workspaces.get(node.name or "", 0),
            )
        )
    return steps, sizes, initial, lasting


def overwritable_operands(node: ir.Node, graph: ir.Graph, dimensions: Dimensions) -> list[ir.Value]:
    """Return the operands that output 0 of a node may overwrite if nothing reads them later."""
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

"""Writes a plan into the metadata of its model; `docs/plan.md` describes the keys."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import onnx_ir as ir

from .....registration import (
    PLAN_BODIES,
    PLAN_BUFFER,
    PLAN_IN_PLACE,
    PLAN_INPUTS,
    PLAN_LIFETIME,
    PLAN_MEMORIES,
    PLAN_OFFSET,
    PLAN_ORDER,
    PLAN_PEAK,
    PLAN_PHASE,
    PLAN_SIZE,
    PlanError,
)
from ..records import WORKSPACE, PlanFacts, PlannedBuffer, PlannedGraph


def annotate(plan: PlanFacts) -> ir.Model:
    """Write a plan into the metadata of its model and the model's nodes, and return the model.

    Raises:
        PlanError: the plan was read from a file and has no model.
    """
    if plan.model is None:
        raise PlanError("a plan that was read from a file has no model: plan the model again")
    graph = plan.model.graph
    _annotate(graph, plan)
    plan.model.metadata_props[PLAN_INPUTS] = json.dumps(_buffer_facts(graph.inputs, plan))
    if plan.memories:
        memories = [dataclasses.asdict(memory) for memory in plan.memories]
        plan.model.metadata_props[PLAN_MEMORIES] = json.dumps(memories)
    if plan.peak is not None:
        plan.model.metadata_props[PLAN_PEAK] = str(plan.peak)
    return plan.model


def _annotate(graph: ir.Graph, planned_graph: PlannedGraph) -> None:
    """Annotate the nodes of a graph and of its sub-graphs."""
    nodes = list(graph)
    buffer_of = {value: buffer for buffer in planned_graph.buffers for value in buffer.values}
    for node, planned in zip(nodes, planned_graph.nodes, strict=True):
        buffers = [buffer_of.get(name) for name in planned.outputs]
        node.metadata_props[PLAN_ORDER] = str(planned.index)
        node.metadata_props[PLAN_PHASE] = planned.phase
        node.metadata_props.update({key: json.dumps(facts) for key, facts in _facts(buffers).items()})
        if planned.in_place:
            overwritten_inputs = [planned.in_place.get(index) for index in range(len(planned.outputs))]
            node.metadata_props[PLAN_IN_PLACE] = json.dumps(overwritten_inputs)
    workspaces = {buffer.name: buffer for buffer in planned_graph.buffers if buffer.kind == WORKSPACE}
    bodies: dict[int, dict[str, object]] = {}
    for body in planned_graph.bodies:
        inner = nodes[body.node].attributes[body.attribute].as_graph()
        _annotate(inner, body)
        workspace = workspaces.get(body.buffer or "")
        bodies.setdefault(body.node, {})[body.attribute] = {
            **({} if workspace is None else _fact(workspace)),
            "inputs": _buffer_facts(inner.inputs, body),
        }
    for index, facts in bodies.items():
        nodes[index].metadata_props[PLAN_BODIES] = json.dumps(facts)


def _buffer_facts(values: Sequence[ir.Value], planned: PlannedGraph) -> list[dict[str, object] | None]:
    buffer_of = {value: buffer for buffer in planned.buffers for value in buffer.values}
    buffers = [buffer_of.get(value.name or "") for value in values]
    return [None if buffer is None else _fact(buffer) for buffer in buffers]


def _fact(buffer: PlannedBuffer) -> dict[str, object]:
    return {
        "buffer": buffer.name,
        "offset": buffer.offset,
        "size": buffer.size,
        "lifetime": list(buffer.lifetime),
    }


def _facts(buffers: list[PlannedBuffer | None]) -> dict[str, list[object]]:
    """Return, for each metadata key, a list with an entry per output; None for outputs without a buffer."""
    return {
        PLAN_BUFFER: [None if buffer is None else buffer.name for buffer in buffers],
        PLAN_OFFSET: [None if buffer is None else buffer.offset for buffer in buffers],
        PLAN_SIZE: [None if buffer is None else buffer.size for buffer in buffers],
        PLAN_LIFETIME: [None if buffer is None else list(buffer.lifetime) for buffer in buffers],
    }

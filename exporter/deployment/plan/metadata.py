"""A plan as metadata of its model; `docs/plan.md` describes the keys."""

from __future__ import annotations

import json
from typing import Any

import onnx_ir as ir

from ....registration import (
    PLAN_BUFFER,
    PLAN_IN_PLACE,
    PLAN_INPUTS,
    PLAN_LIFETIME,
    PLAN_OFFSET,
    PLAN_ORDER,
    PLAN_PEAK,
    PLAN_PHASE,
    PLAN_SIZE,
    PlanError,
)
from .records import PlanFacts, PlannedBuffer


def annotate(plan: PlanFacts) -> ir.Model:
    """The planned model with the plan in the metadata of its nodes.

    Raises:
        PlanError: the plan was read from a file and has no model.
    """
    if plan.model is None:
        raise PlanError("a plan that was read from a file has no model: plan the model again")
    of = {value: buffer for buffer in plan.buffers for value in buffer.values}
    for node, planned in zip(plan.model.graph, plan.nodes, strict=True):
        found = [of.get(name) for name in planned.outputs]
        node.metadata_props[PLAN_ORDER] = str(planned.index)
        node.metadata_props[PLAN_PHASE] = planned.phase
        for key, facts in _facts(found).items():
            node.metadata_props[key] = json.dumps(facts)
        if planned.in_place:
            places = [planned.in_place.get(index) for index in range(len(planned.outputs))]
            node.metadata_props[PLAN_IN_PLACE] = json.dumps(places)
    inputs = [of.get(value.name or "") for value in plan.model.graph.inputs]
    plan.model.metadata_props[PLAN_INPUTS] = json.dumps(
        [None if buffer is None else _fact(buffer) for buffer in inputs]
    )
    if plan.peak is not None:
        plan.model.metadata_props[PLAN_PEAK] = str(plan.peak)
    return plan.model


def _fact(buffer: PlannedBuffer) -> dict[str, Any]:
    return {
        "buffer": buffer.name,
        "offset": buffer.offset,
        "size": buffer.size,
        "lifetime": list(buffer.lifetime),
    }


def _facts(buffers: list[PlannedBuffer | None]) -> dict[str, list[Any]]:
    """Per key, an entry for each output; null for those without memory."""
    return {
        PLAN_BUFFER: [None if buffer is None else buffer.name for buffer in buffers],
        PLAN_OFFSET: [None if buffer is None else buffer.offset for buffer in buffers],
        PLAN_SIZE: [None if buffer is None else buffer.size for buffer in buffers],
        PLAN_LIFETIME: [None if buffer is None else list(buffer.lifetime) for buffer in buffers],
    }

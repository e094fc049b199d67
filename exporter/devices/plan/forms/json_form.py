"""Writes and reads `plan.json`, a plan as JSON, and provides its schema."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import Any

from .....registration import PlanError
from .....registration.json_text import parse_json
from ..records import (
    PlanFacts,
    PlannedBody,
    PlannedBuffer,
    PlannedGraph,
    PlannedMemory,
    PlannedNode,
    PlannedState,
    PlannedWeight,
)

FORMAT = 1
SCHEMA = "plan.schema.json"


def schema() -> str:
    """Return the JSON schema of `plan.json` (JSON Schema 2020-12)."""
    return importlib.resources.files(__package__).joinpath(SCHEMA).read_text(encoding="utf-8")


def to_json(plan: PlanFacts) -> str:
    """Write a plan as JSON."""
    return json.dumps(
        {
            "format": FORMAT,
            "mode": plan.mode,
            "peak": plan.peak,
            "lower_bound": plan.lower_bound,
            "alignment": plan.alignment,
            "budget": plan.budget,
            "fits": plan.fits,
            "weight_bytes": plan.weight_bytes,
            "dimensions": dict(plan.dimensions),
            **_graph_form(plan),
            "weights": [
                {"name": weight.name, "size": weight.size, "lifetime": list(weight.lifetime)}
                for weight in plan.weights
            ],
            "states": [dataclasses.asdict(state) for state in plan.states],
            "memories": [dataclasses.asdict(memory) for memory in plan.memories],
            "extra_work": plan.extra_work,
        },
        indent=1,
    )


def _graph_form(graph: PlannedGraph) -> dict[str, object]:
    return {
        "nodes": [
            {
                "index": node.index,
                "name": node.name,
                "domain": node.domain,
                "op_type": node.op_type,
                "phase": node.phase,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "in_place": {str(output): position for output, position in node.in_place.items()},
                "view": node.view,
                "captured": list(node.captured),
            }
            for node in graph.nodes
        ],
        "buffers": [
            {
                "name": buffer.name,
                "offset": buffer.offset,
                "size": buffer.size,
                "lifetime": list(buffer.lifetime),
                "values": list(buffer.values),
                "kind": buffer.kind,
                "within": buffer.within,
                "memory": buffer.memory,
            }
            for buffer in graph.buffers
        ],
        "bodies": [
            {
                "node": body.node,
                "attribute": body.attribute,
                "buffer": body.buffer,
                "peak": body.peak,
                "lower_bound": body.lower_bound,
                "unplanned": body.unplanned,
                "inputs": list(body.inputs),
                "outputs": list(body.outputs),
                **_graph_form(body),
            }
            for body in graph.bodies
        ],
    }


def from_json(text: str) -> dict[str, Any]:
    """Read the fields of a `Plan` from JSON.

    Raises:
        PlanError: the text does not match the documented schema.
    """
    try:
        form = parse_json(text.encode())
        if form["format"] != FORMAT:
            raise PlanError(
                f"the plan has format {form['format']!r}, but this version of opsetta reads format {FORMAT}"
            )
        return {
            **{key: form[key] for key in ("mode", "alignment", "budget")},
            "dimensions": dict(form["dimensions"]),
            **_graph_fields(form),
            "weights": tuple(
                PlannedWeight(entry["name"], entry["size"], _span(entry["lifetime"]))
                for entry in form["weights"]
            ),
            # Plans of earlier releases have no states.
            "states": tuple(
                PlannedState(entry["input"], entry["output"], bool(entry["in_place"]))
                for entry in form.get("states", ())
            ),
            "memories": tuple(PlannedMemory(**entry) for entry in form.get("memories", ())),
            "extra_work": float(form.get("extra_work", 0.0)),
        }
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlanError(f"this is not the JSON form of a plan: {type(error).__name__}: {error}") from error


def _graph_fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodes": tuple(_node(node) for node in entry["nodes"]),
        "buffers": tuple(
            PlannedBuffer(
                **{key: buffer[key] for key in ("name", "offset", "size", "kind")},
                lifetime=_span(buffer["lifetime"]),
                values=tuple(buffer["values"]),
                within=buffer.get("within"),
                memory=buffer.get("memory"),
            )
            for buffer in entry["buffers"]
        ),
        "bodies": tuple(_body(body) for body in entry["bodies"]),
        "peak": entry["peak"],
        "lower_bound": entry["lower_bound"],
    }


def _body(entry: dict[str, Any]) -> PlannedBody:
    return PlannedBody(
        **_graph_fields(entry),
        **{key: entry[key] for key in ("node", "attribute", "buffer", "unplanned")},
        inputs=tuple(entry["inputs"]),
        outputs=tuple(entry["outputs"]),
    )


def _node(entry: dict[str, Any]) -> PlannedNode:
    in_place = {int(output): position for output, position in entry["in_place"].items()}
    names = tuple(entry["inputs"]), tuple(entry["outputs"])
    identity = entry["name"], entry["domain"], entry["op_type"], entry["phase"]
    captured = tuple(entry["captured"])
    return PlannedNode(entry["index"], *identity, *names, in_place, entry["view"], captured)


def _span(lifetime: list[int]) -> tuple[int, int]:
    first, last = lifetime
    return int(first), int(last)

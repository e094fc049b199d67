"""When two source nodes have one decomposition: they say the same of values of the same types."""

from __future__ import annotations

import json

import onnx_ir as ir

from ....registration import COMPLEX, NUMBER
from ....registration.arguments import ATTRIBUTE, overloaded_name


def likeness(node: ir.Node) -> str:
    """What a node's decomposition follows from: operator, arguments, and the types of its inputs, as JSON."""
    arguments = node.attributes[ATTRIBUTE].value
    return json.dumps([overloaded_name(node), arguments, *_types(node)], separators=(",", ":"))


def _types(node: ir.Node) -> list[list[object] | None]:
    found: list[list[object] | None] = []
    for value in node.inputs:
        if value is None:
            found.append(None)
            continue
        entry: list[object] = [
            None if value.type is None else str(value.type),
            None if value.shape is None else [_dimension(dim) for dim in value.shape],
            value.metadata_props.get(NUMBER),
            COMPLEX in value.metadata_props,
        ]
        if NUMBER in value.metadata_props:
            # Two numbers may be one, and then they are equal.
            entry.append(node.inputs.index(value))
        found.append(entry)
    return found


def _dimension(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value

"""Fingerprints of source nodes: nodes with equal fingerprints have the same decomposition."""

from __future__ import annotations

import json

import onnx_ir as ir

from ....registration import COMPLEX, NUMBER
from ....registration.arguments import ATTRIBUTE, overloaded_name


def fingerprint(node: ir.Node) -> str:
    """The operator, arguments and input types of a node as JSON, which determine its decomposition."""
    arguments = node.attributes[ATTRIBUTE].value
    return json.dumps([overloaded_name(node), arguments, *_types(node)], separators=(",", ":"))


def _types(node: ir.Node) -> list[list[object] | None]:
    input_types: list[list[object] | None] = []
    for value in node.inputs:
        if value is None:
            input_types.append(None)
            continue
        entry: list[object] = [
            None if value.type is None else str(value.type),
            None if value.shape is None else [_dimension(dim) for dim in value.shape],
            value.metadata_props.get(NUMBER),
            COMPLEX in value.metadata_props,
        ]
        if NUMBER in value.metadata_props:
            # The decomposition may depend on two inputs being the same number, so record which ones are.
            entry.append(node.inputs.index(value))
        input_types.append(entry)
    return input_types


def _dimension(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value

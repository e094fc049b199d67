"""Lowers operators that ONNX does not have, with the user's symbolic functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir import Value

from ....registration import GraphContext, Registry, SymbolicFunction, composed_results, registry_or_default
from ....registration.schemas import operator_schemas


def has_versions(op_type: str) -> bool:
    """Whether ONNX has the operator at any opset."""
    return bool(operator_schemas(op_type))


def foreign_function(node: ir.Node, registry: Registry, opset: int) -> SymbolicFunction | None:
    """The function that is registered for a node, as `com.example::Name`; in ONNX's domain `onnx::Name`."""
    if node.domain not in ("", "ai.onnx"):
        return registry.lookup(f"{node.domain}::{node.op_type}", node.overload, opset)
    return None if has_versions(node.op_type) else registry.lookup(f"onnx::{node.op_type}", "", opset)


def has_foreign_function(model: ir.Model, registry: Registry | None, opset: int) -> bool:
    """Whether a function is registered for an operator of the model that ONNX does not have."""
    functions = registry_or_default(registry)
    return any(foreign_function(node, functions, opset) is not None for node in model.graph.all_nodes())


def call_foreign(
    symbolic: SymbolicFunction,
    g: GraphContext,
    node: ir.Node,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, ir.Attr],
) -> list[Value]:
    """The results of a function whose first parameters are the inputs; attributes go by their names."""
    inputs_by_name = dict(zip(symbolic.parameters, inputs, strict=False))
    arguments = {**inputs_by_name, **{name: attribute.value for name, attribute in attributes.items()}}
    results = composed_results(symbolic, symbolic(g, arguments), len(node.outputs))
    return [g.constant(result) for result in results]

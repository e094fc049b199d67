"""Provides the function bodies in ONNX's schemas, which define operators by other operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir
from onnx_ir import Value

from .....registration.schemas import operator_schemas
from ..file_nodes.binding import node_message, type_message


@dataclasses.dataclass(frozen=True)
class Body:
    """The nodes of a function, and the opset of their operators."""

    graph: ir.Graph
    opset: int


def body_of(
    op_type: str,
    source: int,
    target: int,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, ir.Attr],
    outputs: int,
) -> Body | None:
    """Return an operator's function body, the newest up to the target, else the oldest; None without one.

    Raises:
        UnsupportedError: the body depends on an unknown element type.
    """
    # The stubs of onnx do not know what its schemas say of functions.
    # onnxruntime writes some operators below the opset at which they begin.
    version = max(source, operator_schemas(op_type)[0].since_version)
    schema: Any = onnx.defs.get_schema(op_type, version, "")
    if schema.has_function:
        nearest = _nearest_version(schema.function_opset_versions, target)
        function_form = schema.get_function_with_opset_version(nearest)
    elif schema.has_context_dependent_function:
        nearest = _nearest_version(schema.context_dependent_function_opset_versions, target)
        message = node_message(op_type, inputs, attributes, outputs)
        types = [type_message(value) for value in inputs]
        function_form = schema.get_context_dependent_function_with_opset_version(nearest, message, types)
    else:
        return None
    if not function_form:
        return None
    function = (
        onnx.FunctionProto.FromString(function_form) if isinstance(function_form, bytes) else function_form
    )
    computed_names = {name for node in function.node for name in node.output}
    # A body may leave out outputs that the call does not use.
    output_names = [
        name if name in computed_names else function.output[0] for name in function.output[:outputs]
    ]
    graph = onnx.GraphProto(name=op_type, node=function.node)
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in output_names)
    opset = next((entry.version for entry in function.opset_import if entry.domain == ""), target)
    # A body built from the node's sub-graph has operators of that sub-graph's opset.
    has_subgraph = any(attribute.type == ir.AttributeType.GRAPH for attribute in attributes.values())
    return Body(ir.serde.deserialize_graph(graph), source if has_subgraph else opset)


def _nearest_version(versions: Sequence[int], target: int) -> int:
    reached = [version for version in versions if version <= target]
    return max(reached) if reached else min(versions)

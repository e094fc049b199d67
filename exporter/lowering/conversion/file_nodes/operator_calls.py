"""Converts ONNX operators that a PyTorch model calls by name, as nodes of an ONNX file are converted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from .....registration import GraphContext, SymbolicFunction, results_of
from .....registration.kinds import is_value
from .....registration.opsets import MAXIMUM_OPSET
from .....registration.schemas import first_version
from ....files.reading import TRUSTED
from ..conversion import Conversion
from ..written_shapes import WrittenShapes
from .file_scope import FileScope

_OPERATOR = re.compile(r"opset(\d+)")
DOMAINS = ("onnx", "onnx_symbolic")
"""The domains of source nodes that name an ONNX operator, see `symbolics/torch_onnx`."""


def convert_call(
    context: GraphContext, node: ir.Node, symbolic: SymbolicFunction, arguments: Mapping[str, object]
) -> list[Value | None] | None:
    """Emit the operator of a call at the call's opset into a separate graph, and convert this graph.

    Args:
        context: emits the converted nodes; its opset lacks the operator.
        node: the source node.
        symbolic: the symbolic function of the node, which emits the operator.
        arguments: the arguments of the symbolic function.

    Returns:
        The results; None for an operator of another domain, or one that the opset supports.

    Raises:
        UnsupportedError: the operator cannot be converted either.
    """
    opset = _opset_of(node, arguments, context.opset)
    if opset is None or opset <= context.opset:
        return None
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name=node.op_type)
    formal_values: dict[Value, Value] = {}

    def formal(item: object) -> object:
        if isinstance(item, list):
            return [formal(member) for member in item]
        if not is_value(item):
            return item
        if item not in formal_values:
            name = f"input_{len(formal_values)}"
            formal_values[item] = ir.Value(name=name, type=item.type, shape=item.shape)
        return formal_values[item]

    at_own_opset = GraphContext(graph, opset, context.registry)
    formal_arguments = {name: formal(item) for name, item in arguments.items()}
    graph.inputs.extend(formal_values.values())
    at_own_opset.construction.enter(node, "")
    results = results_of(symbolic, symbolic(at_own_opset, formal_arguments), len(node.outputs))
    source = ir.Model(graph, ir_version=10)
    shapes = WrittenShapes(source, context.opset, TRUSTED)
    conversion = Conversion(source, context.opset, context.registry, TRUSTED, shapes)
    conversion.context, conversion.construction = context, context.construction
    conversion.graph, conversion.names = context.construction.graph, context.construction.names
    values = {formal_value: actual for actual, formal_value in formal_values.items()}
    for initializer in graph.initializers.values():
        assert initializer.const_value is not None
        values[initializer] = context.constant(initializer.const_value.numpy())
    conversion.nodes(graph, FileScope(values, opset, {}, copies=False))
    return [values.get(result) if isinstance(result, Value) else None for result in results]


def _opset_of(node: ir.Node, arguments: Mapping[str, Any], target: int) -> int | None:
    """Return the opset whose operator a call means; None for another domain or an unknown operator."""
    match = _OPERATOR.fullmatch(node.overload)
    if match is not None:
        return int(match[1])
    if arguments.get("domain", "") not in ("", "ai.onnx"):
        return None
    stated: int | None = arguments.get("version")
    if stated:
        return min(stated, MAXIMUM_OPSET)
    return first_version(arguments["op_type"], "", lambda schema: True, target)

"""Lowers operators that ONNX does not have by the user's symbolic functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir import Value

from .....passes.quantization.forms import MICROSOFT
from .....registration import (
    GraphContext,
    Registry,
    SymbolicFunction,
    UnsupportedError,
    absent_result,
    registry_or_default,
    results_of,
)
from .....registration.arguments import every_node
from .....registration.functions.results import as_list
from .....registration.schemas import operator_schemas
from .....registration.warning import warn

WRITTEN_EARLY = frozenset({"LayerNormalization", "ThresholdedRelu"})
"""Operators that onnxruntime's optimizer writes below the opset that introduces them."""
LAYOUT_DOMAIN = "com.microsoft.nchwc"
LAYOUT_REMEDY = (
    "its weights are in the memory layout of one machine's processor: optimize the file with "
    "ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL"
)
"""The remedy in messages. Such weights cannot be converted, as the file lacks the layout's block size."""


def has_versions(op_type: str) -> bool:
    """Whether ONNX has the operator at any opset."""
    return bool(operator_schemas(op_type))


def foreign_function(node: ir.Node, registry: Registry, opset: int) -> SymbolicFunction | None:
    """Return the function registered for a node as `com.example::Name`, in ONNX's domain as `onnx::Name`."""
    if node.domain not in ("", "ai.onnx"):
        return registry.lookup(f"{node.domain}::{node.op_type}", node.overload, opset)
    return None if has_versions(node.op_type) else registry.lookup(f"onnx::{node.op_type}", "", opset)


def rewrites_operators(model: ir.Model, registry: Registry | None, opset: int) -> bool:
    """Whether the model has nodes that are rewritten even without a change of opset.

    These are nodes with a registered function but no ONNX operator, and nodes in `WRITTEN_EARLY`.
    """
    functions = registry_or_default(registry)
    return any(
        foreign_function(node, functions, opset) is not None
        or (
            node.domain in ("", "ai.onnx")
            and node.op_type in WRITTEN_EARLY
            and operator_schemas(node.op_type)[0].since_version > opset
        )
        for node in every_node(model.graph)
    )


def with_standard_operators(registry: Registry, takes_scan: bool) -> Registry:
    """Return a registry that also converts operators of onnxruntime's domain to ONNX operators.

    Functions that are registered for these operators keep their precedence.

    Args:
        takes_scan: whether the functions may write Scan.
    """
    from .....symbolics.microsoft import microsoft_registry, scanless_registry

    overlay = registry.fork()
    for symbolic in (*microsoft_registry, *(() if takes_scan else scanless_registry)):
        if not registry.versions(symbolic.name):
            # Not `register`, which would check the signatures again for every model.
            overlay.put_first(symbolic)
    return overlay


def close_domain(model: ir.Model, *, warns: bool) -> None:
    """Remove the import of onnxruntime's domain if no node needs it.

    Args:
        warns: whether to warn about operators that need it.
    """
    names = sorted({node.op_type for node in every_node(model.graph) if node.domain == MICROSOFT})
    if not names:
        model.graph.opset_imports.pop(MICROSOFT, None)
    if warns and any(node.domain == LAYOUT_DOMAIN for node in every_node(model.graph)):
        warn(f"operators of {LAYOUT_DOMAIN} stay: {LAYOUT_REMEDY}")
    if names and warns:
        warn(f"opsetta has no function for these operators of {MICROSOFT}, which stay: {', '.join(names)}")


def call_foreign(
    symbolic: SymbolicFunction,
    g: GraphContext,
    node: ir.Node,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, ir.Attr],
) -> list[Value | None]:
    """Call a function whose first parameters are the node's inputs; attributes are passed by name.

    A parameter that is a list of tensors gets all inputs from its position on.

    Raises:
        UnsupportedError: the function has no parameter for an input or an attribute, or lacks an output.
    """
    inputs_by_name: dict[str, object] = dict(zip(symbolic.parameters, inputs, strict=False))
    variadic = [p.element_value and not p.value for p in symbolic.parameters.values()][: len(inputs)]
    if any(variadic):
        position = variadic.index(True)
        inputs_by_name = dict(itertools.islice(inputs_by_name.items(), position))
        inputs_by_name[list(symbolic.parameters)[position]] = list(inputs[position:])
    elif any(value is not None for value in inputs[len(symbolic.parameters) :]):
        raise UnsupportedError(f"input {len(symbolic.parameters) + 1} is not supported")
    arguments = dict(inputs_by_name)
    for name, attribute in attributes.items():
        arguments[name] = list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value
    # Unused outputs may be missing at the end, or have no name.
    returned = as_list(symbolic(g, arguments))[: len(node.outputs)]
    results = results_of(symbolic, returned, len(node.outputs))
    for output, result in zip(node.outputs, results, strict=True):
        if result is None and output.name and (output.uses() or output.is_graph_output()):
            raise UnsupportedError(absent_result(symbolic, returned, len(node.outputs), output.name))
    return [None if result is None else g.constant(result) for result in results]

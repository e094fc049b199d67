"""Runs realizer passes over a finished model, and leaves it valid."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from ...passes.faults import run_pass
from ...passes.onnx_graph.inplace.annotations import annotate_inplace
from ...passes.realizers.rewriting import is_of_plan
from ...passes.realizers.stored_values.element_types import ConvertElementTypes
from ...registration import MAY_OVERWRITE, GraphError, UsageError
from ...registration.arguments import every_node
from ...registration.validity.node_check import check_nodes, invalid_nodes
from ...registration.warning import warn
from ..files.reading import bounds_of
from ..files.reading.carried import carried_by
from ..lowering.conversion.prepared_models.preparation import prepare_source, source_of
from ..lowering.conversion.size import check_node_count
from ..lowering.driver import FREE_INITIALIZERS, initializers_as_inputs

_INFERENCES = 2
"""How many times as much time as an inference of shapes a pass takes, with the inference after it."""
_NUMBERS = 64
"""Constants of at most so many elements are numbers of the model, not weights."""


def convert_element_types(
    source_model: ir.Model, dtype: str, keep_io: bool, exclude: Collection[str], trusted: bool
) -> ir.Model:
    """A copy of a model in another precision; arguments, warnings and errors are those of `convert_types`."""
    converter = ConvertElementTypes(dtype, converts_interface=not keep_io, excluded=exclude)
    converted = rewrite(source_model, [converter], trusted)
    if converter.unused:
        raise UsageError(f"the model has no operator or node {', '.join(sorted(converter.unused))}")
    return converted


def rewrite(source_model: ir.Model, passes: Sequence[ir.passes.PassBase], trusted: bool) -> ir.Model:
    """A copy of a model, rewritten by passes in order; it shares the weights that no pass changed.

    Raises:
        GraphError: a pass cannot rewrite the model, or the model has parts that no pass rewrites, or too many
            nodes for its size and is not trusted.
        InvalidNodesError: the passes made nodes that are not valid.
        OpsettaError: a pass failed, which is a fault of opsetta.
    """
    _check(source_model)
    annotated = any(MAY_OVERWRITE in node.metadata_props for node in every_node(source_model.graph))
    bounds = bounds_of(trusted)
    check_node_count(source_model, bounds, _INFERENCES, "rewrite")
    rewritten = source_of(source_model, bounds)
    invalid = invalid_nodes(rewritten)
    weights = _free_weights(rewritten)
    for realizer in passes:
        # Later passes need types and shapes of what earlier ones made.
        rewritten = run_pass(realizer, rewritten).model
        prepare_source(rewritten, bounds)
        if isinstance(realizer, ConvertElementTypes) and realizer.limited:
            listed = ", ".join(f"'{name}' ({count})" for name, count in realizer.limited.items())
            warn(
                f"numbers of weights beyond the range of {realizer.types} became its largest number: {listed}"
            )
    if source_model.ir_version < FREE_INITIALIZERS:
        rewritten.ir_version = source_model.ir_version
        initializers = rewritten.graph.initializers.values()
        initializers_as_inputs(rewritten, {v for v in initializers if v.name in weights or _is_large(v)})
    # The passes changed the nodes and values that an earlier plan describes.
    for properties in (rewritten.metadata_props, *(n.metadata_props for n in every_node(rewritten.graph))):
        for key in [key for key in properties if is_of_plan(key)]:
            del properties[key]
    # Nodes that were invalid before are the caller's, not the passes'.
    check_nodes(rewritten, invalid)
    if annotated:
        annotate_inplace(rewritten)
    return rewritten


def _free_weights(model: ir.Model) -> frozenset[str]:
    """Remove initializers from the inputs, where old IR versions require them; return their names."""
    if model.ir_version >= FREE_INITIALIZERS:
        return frozenset()
    # Passes expect that inputs are what a caller feeds.
    model.ir_version = FREE_INITIALIZERS
    graph = model.graph
    graph.inputs[:] = [value for value in graph.inputs if not value.is_initializer()]
    return frozenset(graph.initializers)


def _is_large(value: ir.Value) -> bool:
    """Whether an initializer that passes made or renamed is a weight, not a shape or a number."""
    return value.const_value is not None and value.const_value.size > _NUMBERS


def _check(model: ir.Model) -> None:
    carried = carried_by(model)
    if carried.types or carried.sparse or carried.training:
        raise GraphError(
            "models with maps, sparse weights or training information are not supported by realize"
        )

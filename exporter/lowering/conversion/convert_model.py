"""`convert`: an ONNX model at another opset."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import onnx_ir as ir

from ....passes.onnx_graph.levels import DEFAULT_LEVEL
from ....registration import Registry, load_entry_points, registry_or_default
from ....registration.arguments import every_node
from ....registration.opsets import check_opset
from ....registration.validity.node_check import invalid_nodes
from ...files.garbage_collection import rare_collections
from ...files.reading import BOUNDS, Bounds
from ...files.reading.carried import attach, carried_by, check_training
from ...torch_boundary.process.process_lock import random_state_preserved
from ..driver import Observation
from .conversion import Conversion
from .file_nodes.foreign_operators import rewrites_operators
from .prepared_models.preparation import check_interface, copy_of, load_contents, opset_of, source_of
from .size import check_conversion_time, limits_of
from .source_validity import check_source, warn_of_invalid
from .written_shapes import WrittenShapes

_TRUST_NAMES_OF_SIZES = ("ShareSizes", "BroadcastNamed", "GatherHeads")
"""Passes that do not run on files, because they need equal names to mean equal sizes."""


@random_state_preserved()
@rare_collections()
def convert(
    model: ir.Model,
    opset: int,
    registry: Registry | None = None,
    bounds: Bounds = BOUNDS,
    level: str | None = None,
    keeps_weights: bool = False,
    observation: Observation | None = None,
    omitted_passes: Collection[str] = (),
    kernels: Collection[str] = (),
) -> ir.Model:
    """Convert a model to another opset; the model is not changed, and weights are shared.

    Args:
        model: an ONNX model at any opset; nodes of `ai.onnx.ml` and of custom domains stay untouched.
        opset, registry: the opset to write, and symbolic functions other than the default ones.
        level: the level of optimization; by default `DEFAULT_LEVEL`, or none for a model at this opset.
        keeps_weights: whether initializers keep their names and contents.
        observation, omitted_passes: filled with the origins of new nodes; names of passes to omit.
        kernels: operators for which the target has kernels, where onnxruntime may lack them.

    Raises:
        OpsetError: opsetta does not support the opset.
        UnsupportedOperatorsError: the opset cannot express some operators; lists all of them.
        InvalidNodesError: nodes of the model, or of the converted model, are not valid.
    """
    converted = _convert_once(
        model, opset, registry, bounds, level, keeps_weights, observation, omitted_passes, kernels
    )
    if level == "none" or (level is None and opset == opset_of(model)) or observation is not None:
        # An unchanged copy; or an observation, which describes the nodes of one conversion.
        return converted
    branch_count = _count_branches(converted)
    while branch_count:
        again = _convert_once(
            converted,
            opset,
            registry,
            bounds,
            level or DEFAULT_LEVEL,
            keeps_weights,
            None,
            omitted_passes,
            kernels,
        )
        remaining = _count_branches(again)
        if remaining >= branch_count:
            break
        converted, branch_count = again, remaining
    return converted


def _convert_once(
    model: ir.Model,
    opset: int,
    registry: Registry | None,
    bounds: Bounds,
    level: str | None,
    keeps_weights: bool,
    observation: Observation | None,
    omitted_passes: Collection[str],
    kernels: Collection[str],
) -> ir.Model:
    """One conversion; arguments and errors are those of `convert`."""
    from .... import symbolics  # noqa: F401

    check_opset(opset)
    load_entry_points()
    check_interface(model)
    limits, source_opset = limits_of(model, bounds), opset_of(model)
    # Without a conversion the graph is copied unchanged, and no passes run.
    has_opset = source_opset == opset and level is None
    if source_opset is None or (has_opset and not rewrites_operators(model, registry, opset)):
        warn_of_invalid(invalid_nodes(model))
        return _attach_carried(model, load_contents(copy_of(model)))
    check_conversion_time(model, limits, bounds)
    check_training(model, opset)
    source = source_of(model, bounds)
    shapes = WrittenShapes(model, opset, bounds)
    conversion = Conversion(source, opset, registry_or_default(registry), bounds, shapes)
    conversion.known_invalid = check_source(source, source_opset, opset, conversion.registry)
    conversion.observation, conversion.construction.kernels = observation, kernels
    conversion.omitted_passes = (*omitted_passes, *_TRUST_NAMES_OF_SIZES)
    conversion.level, conversion.keeps_weights = level or DEFAULT_LEVEL, keeps_weights
    with shapes.faults_of_file(source_opset):
        return _attach_carried(model, load_contents(conversion.run()))


def _count_branches(model: ir.Model) -> int:
    """The number of If nodes, if all sizes of the inputs are known.

    Constants of the converted model give sizes that onnx could not infer before, and these choose branches.
    """
    is_static = all(value.shape is not None and value.shape.is_static() for value in model.graph.inputs)
    return sum(node.op_type == "If" for node in every_node(model.graph)) if is_static else 0


def _attach_carried(model: ir.Model, converted: ir.Model) -> ir.Model:
    """Attach the source model's carried parts to the converted one, except weights packed for its graph."""
    attach(converted, dataclasses.replace(carried_by(model), packed={}))
    return converted

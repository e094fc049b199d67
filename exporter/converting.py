"""Converts a file's model to another opset: how `OnnxModel.lower` runs it, and runs it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ..passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ..passes.quantization.forms import MICROSOFT
from ..registration import Registry
from ..registration.functions.registry import registry_or_default
from ..registration.opsets import opset_or_default
from .files.reading import Bounds
from .lowering.conversion.convert_model import convert
from .lowering.conversion.file_nodes.foreign_operators import close_domain, with_standard_operators
from .lowering.conversion.prepared_models.preparation import infer_missing_types
from .lowering.conversion.size import check_node_count
from .lowering.driver import Observation

# Most conversions are for no target, and keep the interface.
if TYPE_CHECKING:
    from .devices.targets.target import Target
    from .editing.interface import Size

_INFERENCES = 2
"""How many times as much time as an inference of shapes the passes of a target take."""
ConvertSource = Callable[..., ir.Model]
"""Converts the source, optionally without passes that change weights, or observed."""


def prepare_conversion(
    source: ir.Model,
    opset: int | None,
    registry: Registry | None,
    optimize: str | bool | None,
    target: str | os.PathLike[str] | Target | None,
    changes: tuple[Mapping[str, Sequence[Size]], Mapping[str, int], str, Mapping[str, str]],
    standard: bool,
    bounds: Bounds,
) -> tuple[ir.Model, ConvertSource, Target | None]:
    """Prepare the conversion of a model; arguments and errors are those of `OnnxModel.lower`.

    Args:
        changes: the fields of `InterfaceChanges`.

    Returns:
        The model with the changes of its interface, the function that converts it, and the target.
    """
    level = None if optimize is None else check_level(optimize)
    new_opset, resolved_target = _resolve_target(opset, target)
    registry_of_target = registry_or_default(registry)
    if resolved_target is not None:
        from .devices.targets.equivalent_forms import with_forms

        check_node_count(source, bounds, _INFERENCES, "write")
        registry_of_target = with_forms(registry_of_target, resolved_target)
    if standard or (resolved_target is not None and MICROSOFT not in resolved_target.domains):
        takes_scan = resolved_target is None or "Scan" in resolved_target.operators
        registry_of_target = with_standard_operators(registry_of_target, takes_scan)
    if any(changes):
        from .editing.interface import InterfaceChanges, change_interface

        source = change_interface(source, InterfaceChanges(*changes), bounds)
        # Sizes that are known now make constants of what was computed from them.
        level = level or DEFAULT_LEVEL

    def convert_source(keeps_weights: bool, observation: Observation | None = None) -> ir.Model:
        omitted_passes: Collection[str] = ()
        kernels: Collection[str] = ()
        if resolved_target is not None:
            omitted_passes = resolved_target.conventions.omitted_passes
            kernels = resolved_target.conventions.kernels
        arguments = registry_of_target, bounds, level, keeps_weights, observation
        new_model = convert(source, new_opset, *arguments, omitted_passes, kernels)
        close_domain(new_model, warns=standard)
        if resolved_target is not None:
            from .devices.targets.write_for_target import write_for

            if resolved_target.forms:
                # Files of other exporters need not declare the shapes that forms depend on.
                infer_missing_types(new_model, bounds)
            write_for(new_model, resolved_target)
        return new_model

    return source, convert_source, resolved_target


def _resolve_target(
    opset: int | None, target: str | os.PathLike[str] | Target | None
) -> tuple[int, Target | None]:
    # Imported here, so that conversions without a target start faster.
    if target is None:
        return opset_or_default(opset), None
    from .devices.targets.load_target import resolve_target

    return resolve_target(opset, target)

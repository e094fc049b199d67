"""`realize`: rewrites a model for an engine by passes in the caller's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from ..passes.faults import run_pass
from ..passes.onnx_graph.inplace.annotations import annotate_inplace
from ..passes.realizers import (
    ChannelsFirst,
    ChannelsLast,
    ConvertElementTypes,
    ExplicitFanOut,
    FlattenToReshape,
    FoldBatchNorm,
    FuseActivations,
    FuseCausalConvolutions,
    PrefixNames,
    ReshapeToFlatten,
    SliceGraph,
    SplitActivations,
    StripTraining,
    UnrollLoops,
    UnrollRecurrent,
)
from ..passes.realizers.rewriting import is_of_plan
from ..registration import MAY_OVERWRITE, GraphError, UsageError
from ..registration.validity.node_check import check_nodes, invalid_nodes
from .files.reading import TRUSTED, bounds_of
from .files.reading.carried import carried_by
from .lowering.conversion.preparation import source_of
from .lowering.driver import FREE_INITIALIZERS, initializers_as_inputs
from .onnx_model import OnnxModel
from .program import Program

Pass = ir.passes.PassBase
PLAIN: dict[str, Callable[[], Pass]] = {
    "channels-first": ChannelsFirst,
    "channels-last": ChannelsLast,
    "explicit-fan-out": ExplicitFanOut,
    "flatten-to-reshape": FlattenToReshape,
    "fold-batch-norm": FoldBatchNorm,
    "fuse-activations": FuseActivations,
    "fuse-causal-convolutions": FuseCausalConvolutions,
    "reshape-to-flatten": ReshapeToFlatten,
    "split-activations": SplitActivations,
    "strip-training": StripTraining,
    "unroll-loops": UnrollLoops,
    "unroll-recurrent": UnrollRecurrent,
}
"""The passes without a value."""
GROUPS = {"unroll": ("unroll-recurrent", "unroll-loops")}
"""Names for several passes without a value."""

_NUMBERS = 64
"""Constants of at most so many elements are numbers of the model, not weights."""


def _slice(text: str) -> Pass:
    inputs, separator, outputs = text.partition(":")
    if not separator:
        raise UsageError(f"slice must be INPUT,INPUT:OUTPUT,OUTPUT, not '{text}'")
    return SliceGraph([n for n in inputs.split(",") if n], [n for n in outputs.split(",") if n])


VALUED: dict[str, Callable[[str], Pass]] = {
    "prefix": PrefixNames,
    "slice": _slice,
    "strip-training": lambda text: StripTraining([name for name in text.split(",") if name]),
    "types": ConvertElementTypes,
}
"""The passes that take a value, `prefix=encoder/`."""


def realize(
    model: Program | OnnxModel | ir.Model | onnx.ModelProto, passes: Sequence[str | Pass]
) -> OnnxModel:
    """Rewrite a finished model by realizer passes, in order; see docs/realizers.md.

    Args:
        model: an exported program, an ONNX model, or its `onnx_ir` or protobuf form. It is not changed.
        passes: names such as `"unroll"` or `"types=FP16-FP32"`, or passes of onnx_ir.

    Returns:
        The new model, which shares the weights that no pass changed.

    Raises:
        UsageError: there is no such pass, or its value has the wrong form.
        GraphError: a pass cannot rewrite the model, or the model has parts that no pass rewrites.
        InvalidNodesError: the passes made nodes that are not valid.
        OpsettaError: a pass failed, which is a fault of opsetta.
    """
    if isinstance(passes, str):
        raise UsageError(f"passes must be a list: write [{passes!r}]")
    names = [
        name
        for entry in passes
        for name in (GROUPS.get(entry, (entry,)) if isinstance(entry, str) else (entry,))
    ]
    realizers = [_pass(realizer) for realizer in names]
    trusted = getattr(model, "trusted", True)
    source_model = ir.from_proto(model) if isinstance(model, onnx.ModelProto) else model
    source_model = source_model if isinstance(source_model, ir.Model) else source_model.model
    _check(source_model)
    annotated = any(MAY_OVERWRITE in node.metadata_props for node in source_model.graph.all_nodes())
    bounds = TRUSTED if trusted else bounds_of(trusted)
    rewritten = source_of(source_model, bounds)
    invalid = invalid_nodes(rewritten)
    weights = _free_weights(rewritten)
    for realizer in realizers:
        # Later passes need types and shapes of what earlier ones made.
        rewritten = source_of(run_pass(realizer, rewritten).model, bounds)
    if source_model.ir_version < FREE_INITIALIZERS:
        rewritten.ir_version = source_model.ir_version
        initializers = rewritten.graph.initializers.values()
        initializers_as_inputs(rewritten, {v for v in initializers if v.name in weights or _is_large(v)})
    # The passes changed the nodes and values that an earlier plan describes.
    for properties in (rewritten.metadata_props, *(n.metadata_props for n in rewritten.graph.all_nodes())):
        for key in [key for key in properties if is_of_plan(key)]:
            del properties[key]
    # Nodes that were invalid before are the caller's, not the passes'.
    check_nodes(rewritten, invalid)
    if annotated:
        annotate_inplace(rewritten)
    return OnnxModel(rewritten, trusted=trusted)


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


def _pass(name_or_pass: str | Pass) -> Pass:
    if isinstance(name_or_pass, Pass):
        return name_or_pass
    name, separator, value = name_or_pass.partition("=")
    name = name.replace("_", "-")
    if name in PLAIN and not separator:
        return PLAIN[name]()
    if name in VALUED and separator:
        return VALUED[name](value)
    names = ", ".join([*sorted([*PLAIN, *GROUPS]), *(f"{valued_name}=…" for valued_name in VALUED)])
    raise UsageError(f"there is no pass '{name_or_pass}'; there are {names}")


def _check(model: ir.Model) -> None:
    carried = carried_by(model)
    if carried.types or carried.sparse or carried.training:
        raise GraphError(
            "models with maps, sparse weights or training information are not supported by realize"
        )

"""`realize`: rewrites a model for an engine by passes in the caller's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from ..passes.quantization import QuantizeWeights, scheme_of
from ..passes.quantization.blocks import DTYPES
from ..passes.realizers import (
    ChannelsFirst,
    ChannelsLast,
    ConvertElementTypes,
    EqualizeChannels,
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
from ..registration import UsageError
from .editing.rewrite import rewrite
from .onnx_model import OnnxModel
from .program import Program

Pass = ir.passes.PassBase
PLAIN: dict[str, Callable[[], Pass]] = {
    "channels-first": ChannelsFirst,
    "channels-last": ChannelsLast,
    "equalize-channels": EqualizeChannels,
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


def _slice(text: str) -> Pass:
    inputs, separator, outputs = text.partition(":")
    if not separator:
        raise UsageError(f"slice must be INPUT,INPUT:OUTPUT,OUTPUT, not '{text}'")
    return SliceGraph([n for n in inputs.split(",") if n], [n for n in outputs.split(",") if n])


def _types(text: str) -> Pass:
    weights, _, activations = text.partition("-")
    if weights.lower() not in DTYPES:
        return ConvertElementTypes(text)
    quantizer = QuantizeWeights(scheme_of(weights.lower()))
    return ir.passes.Sequential(ConvertElementTypes(activations or "FP32"), quantizer)


VALUED: dict[str, Callable[[str], Pass]] = {
    "prefix": PrefixNames,
    "slice": _slice,
    "strip-training": lambda text: StripTraining([name for name in text.split(",") if name]),
    "types": _types,
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
    return OnnxModel(rewrite(source_model, realizers, trusted), trusted=trusted)


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

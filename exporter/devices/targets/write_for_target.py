"""Rewrites a model by the conventions of a target, and refuses unsupported parts."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from ....passes.faults import run_pass
from ....passes.onnx_graph.constants.initializers import Initializers
from ....passes.onnx_graph.conventions.bool_constants import StoreBools
from ....passes.onnx_graph.conventions.broadcasts import WriteBroadcasts
from ....passes.onnx_graph.conventions.constant_forms import WriteConstantNodes, WriteInitializers
from ....passes.onnx_graph.conventions.default_attributes import WriteDefaultAttributes
from ....passes.onnx_graph.conventions.gemm_weights import TransposeGemmWeights
from ....passes.onnx_graph.conventions.int64_constants import NarrowConstants
from ....passes.onnx_graph.conventions.recurrent_outputs import CompleteRecurrentOutputs
from ....passes.onnx_graph.conventions.resize import ResizeBy
from ....passes.onnx_graph.simplification.exponents import AlignExponents
from ....passes.onnx_graph.simplification.unused_nodes import RemoveUnused
from ....passes.realizers.compose_operators import ComposeOperators
from ....passes.realizers.unroll_recurrent import OPERATORS_OF_STEPS, UnrollRecurrent
from ....registration import default_registry
from ...lowering.driver import FREE_INITIALIZERS, initializers_as_inputs
from .equivalent_forms import with_forms
from .target import Conventions, Target
from .target_problems import check_model


def write_for(model: ir.Model, target: Target | None) -> None:
    """Rewrite a model by the conventions of a target, and check it. Without a target, do nothing.

    Raises:
        TargetError: lists everything that the target does not take.
        OpsettaError: a pass failed, which is a fault of opsetta.
    """
    if target is None:
        return
    compose_operators = ComposeOperators(
        target.operators.__contains__,
        default_registry,
        dict(target.forms),
        with_forms(default_registry, target),
    )
    composed = _run([compose_operators], model)
    composed |= _unroll(model, target)
    passes = _passes(model, target.conventions)
    if passes or composed or target.conventions.recurrent_outputs == "all":
        # Unused outputs are removed with unused nodes, so those of recurrent nodes are added afterwards.
        _run([*passes, RemoveUnused(), CompleteRecurrentOutputs()], model)
        if model.ir_version < FREE_INITIALIZERS:
            initializers_as_inputs(model, {value for value in model.graph.inputs if value.const_value})
    check_model(model, target, refused_forms=compose_operators.refusals)


def _unroll(model: ir.Model, target: Target) -> bool:
    """Unroll recurrent operators that the target lacks, if it takes those of the steps."""
    lacking = [name for name in ("GRU", "LSTM", "RNN") if name not in target.operators]
    if not lacking or not all(name in target.operators for name in OPERATORS_OF_STEPS):
        return False
    return _run([UnrollRecurrent(lacking, keeps_refused=True)], model)


def _run(passes: Iterable[ir.passes.PassBase], model: ir.Model) -> bool:
    """Run passes in order, and return whether one of them changed the model."""
    results = [
        run_pass(graph_pass, model, "It runs for this target; the model is written without one")
        for graph_pass in passes
    ]
    return any(result.modified for result in results)


def _passes(model: ir.Model, conventions: Conventions) -> list[ir.passes.PassBase]:
    initializers = Initializers(model)
    passes: list[ir.passes.PassBase] = []
    # Passes below read initializers only.
    if (
        conventions.constants == "initializers"
        or conventions.bool_constants
        or conventions.int64_constants
        or conventions.broadcasts
        or conventions.gemm_weights
    ):
        passes.append(WriteInitializers())
    if conventions.float_exponents:
        passes.append(AlignExponents(initializers))
    if conventions.gemm_weights is not None:
        passes.append(TransposeGemmWeights(initializers))
    if conventions.broadcasts is not None:
        passes.append(WriteBroadcasts(conventions.broadcasts, initializers))
    if conventions.resize is not None:
        passes.append(ResizeBy(conventions.resize, initializers))
    if conventions.int64_constants is not None:
        passes.append(NarrowConstants(initializers))
    if conventions.bool_constants is not None:
        passes.append(StoreBools(ir.DataType[conventions.bool_constants.upper()], initializers))
    if conventions.explicit_attributes:
        passes.append(WriteDefaultAttributes(conventions.explicit_attributes))
    if conventions.constants == "nodes":
        passes.append(WriteConstantNodes())
    return passes

"""Rewrites a model by the conventions of a target, and refuses unsupported parts."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from ....passes.faults import run_pass
from ....passes.onnx_graph.constants.initializers import Initializers
from ....passes.onnx_graph.conventions.bool_constants import StoreBools
from ....passes.onnx_graph.conventions.constant_forms import WriteConstantNodes, WriteInitializers
from ....passes.onnx_graph.conventions.default_attributes import WriteDefaultAttributes
from ....passes.onnx_graph.conventions.int64_constants import NarrowConstants
from ....passes.onnx_graph.conventions.recurrent_outputs import CompleteRecurrentOutputs
from ....passes.onnx_graph.conventions.resize import ResizeBy
from ....passes.onnx_graph.simplification.exponents import AlignExponents
from ....passes.onnx_graph.simplification.unused_nodes import RemoveUnused
from ....passes.realizers.compose_operators import ComposeOperators
from ....passes.realizers.unroll_recurrent import OPERATORS_OF_STEPS, UnrollRecurrent
from ....registration import default_registry
from ....registration.schemas import operator_schema
from ....registration.warning import warn
from ...lowering.driver import FREE_INITIALIZERS, initializers_as_inputs
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
    _warn_of_scales(model, target)
    composed = _run([ComposeOperators(target.operators.__contains__, default_registry)], model)
    composed |= _unroll(model, target)
    passes = _passes(model, target.conventions)
    if passes or composed or target.conventions.recurrent_outputs == "all":
        # Unused outputs are removed with unused nodes, so those of recurrent nodes are added afterwards.
        _run([*passes, RemoveUnused(), CompleteRecurrentOutputs()], model)
        if model.ir_version < FREE_INITIALIZERS:
            initializers_as_inputs(model, {value for value in model.graph.inputs if value.const_value})
    check_model(model, target)


def _warn_of_scales(model: ir.Model, target: Target) -> None:
    """Warn of images resized by scales, because the opset has no sizes, for a target that reads sizes."""
    if target.conventions.resize != "sizes":
        return
    opset = model.opset_imports[""]
    for name in sorted({node.op_type for node in model.graph.all_nodes()} & {"Resize", "Upsample"}):
        schema = operator_schema(name, opset)
        if schema is not None and "sizes" not in schema.input_index:
            warn(
                f"target '{target.name}' has resize = \"sizes\", but {name} of opset {opset} has only "
                "scales: write opset 11 or above"
            )


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
    if conventions.constants == "initializers" or conventions.bool_constants or conventions.int64_constants:
        passes.append(WriteInitializers())
    if conventions.float_exponents:
        passes.append(AlignExponents(initializers))
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

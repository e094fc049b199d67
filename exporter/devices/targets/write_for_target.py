"""Rewrites a model by the conventions of a target, and raises an error for unsupported parts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

import onnx_ir as ir
from onnx_ir.passes.common import DeduplicateInitializersPass, ShapeInferencePass

from ....passes.faults import run_pass
from ....passes.onnx_graph.constants.fold_constants import FoldConstants
from ....passes.onnx_graph.constants.initializers import Initializers
from ....passes.onnx_graph.conventions.bool_constants import StoreBools
from ....passes.onnx_graph.conventions.broadcasts import WriteBroadcasts
from ....passes.onnx_graph.conventions.constant_forms import WriteConstantNodes, WriteInitializers
from ....passes.onnx_graph.conventions.default_attributes import WriteDefaultAttributes
from ....passes.onnx_graph.conventions.gemm_weights import TransposeGemmWeights
from ....passes.onnx_graph.conventions.int64_constants import NarrowConstants
from ....passes.onnx_graph.conventions.joined_directions import JoinDirections
from ....passes.onnx_graph.conventions.recurrent_outputs import CompleteRecurrentOutputs
from ....passes.onnx_graph.conventions.resize import ResizeBy
from ....passes.onnx_graph.conventions.unshared_constants import UnshareConstants
from ....passes.onnx_graph.conventions.vector_inputs import ReshapeVectors
from ....passes.onnx_graph.fusions.gelu import HalveGeluInput
from ....passes.onnx_graph.shapes.shape_chains import MergeShapeChains
from ....passes.onnx_graph.simplification.equal_nodes import MergeEqualNodes
from ....passes.onnx_graph.simplification.exponents import AlignExponents
from ....passes.onnx_graph.simplification.unused_nodes import RemoveUnused
from ....passes.quantization.dequantized_products import WriteMatMulNBits
from ....passes.quantization.forms import MICROSOFT
from ....passes.realizers.operators.causal_convolutions import CAUSAL_CONVOLUTION, FuseCausalConvolutions
from ....passes.realizers.operators.compose_operators import ComposeOperators
from ....passes.realizers.operators.form_matching import rule_matches
from ....passes.realizers.operators.squeezed_sequences import SqueezeSequences
from ....passes.realizers.operators.unroll_recurrent import OPERATORS_OF_STEPS, UnrollRecurrent
from ....registration import default_registry
from ....registration.arguments import every_node
from ....registration.form_rule import STEPS, FormRule
from ....registration.schemas import operator_schema
from ....registration.warning import warn
from ...lowering.driver import FREE_INITIALIZERS, initializers_as_inputs
from .equivalent_forms import with_forms
from .state_inputs import warn_of_state_inputs
from .target import Conventions, Target
from .target_problems import check_model, find_inexact_nodes, list_problems

_MAXIMUM_ROUNDS = 5
"""How often the rules of `forms` are applied, because a form may contain operators that have rules too."""


def write_for(model: ir.Model, target: Target | None) -> None:
    """Rewrite a model by the conventions of a target, and check it. Without a target, do nothing.

    Raises:
        TargetError: lists everything that the target does not support.
        OpsettaError: a pass failed, which is a fault of opsetta.
    """
    if target is None:
        return
    _warn_of_scales(model, target)
    warn_of_state_inputs(model, target)
    # Searched before forms replace these nodes.
    inexact_nodes = find_inexact_nodes(model, target)
    if inexact_nodes:
        warn(
            f"target '{target.name}' does not compute all numbers exactly (nodes: {len(inexact_nodes)}):\n"
            f"{list_problems(inexact_nodes)}"
        )
    _infer_missing_shapes(model, target)
    # First, because a form may remove the properties by which a layer is chosen for unrolling.
    composed = _unroll(model, target)
    passes_of_forms = _form_passes(target)
    for _ in range(_MAXIMUM_ROUNDS):
        if not _run(passes_of_forms, model):
            break
        composed = True
        _infer_missing_shapes(model, target)
    if MICROSOFT in target.domains:
        _run([WriteMatMulNBits()], model)
    passes = _passes(model, target.conventions)
    if composed:
        # Forms of operators on weights are computed once, Reshapes around forms are merged, and forms that
        # several nodes need are written once, as the optimization does with what was there before.
        initializers = Initializers(model)
        simplifying = [
            FoldConstants(initializers),
            MergeShapeChains(initializers),
            JoinDirections(initializers),
            # Two forms that write Reshapes to one shape create an initializer each.
            DeduplicateInitializersPass(),
            MergeEqualNodes(),
        ]
        passes = [*simplifying, *passes]
    if passes or target.conventions.recurrent_outputs == "all":
        # Unused outputs are removed with unused nodes, so those of recurrent nodes are added afterwards.
        _run([*passes, RemoveUnused(), CompleteRecurrentOutputs()], model)
        if model.ir_version < FREE_INITIALIZERS:
            initializers_as_inputs(model, {value for value in model.graph.inputs if value.const_value})
    refused_forms: dict[str, dict[str, str]] = defaultdict(dict)
    for pass_of_forms in passes_of_forms:
        for op_type, refusals in pass_of_forms.refusals.items():
            refused_forms[op_type] |= refusals
    check_model(model, target, refused_forms=refused_forms)


def _warn_of_scales(model: ir.Model, target: Target) -> None:
    """Warn if a target needs Resize with sizes, but the opset supports only scales."""
    if target.conventions.resize != "sizes":
        return
    opset = model.opset_imports[""]
    for name in sorted({node.op_type for node in every_node(model.graph)} & {"Resize", "Upsample"}):
        schema = operator_schema(name, opset)
        if schema is not None and "sizes" not in schema.input_index:
            warn(
                f"target '{target.name}' has resize = \"sizes\", but {name} of opset {opset} has only "
                "scales: write opset 11 or above"
            )


def _infer_missing_shapes(model: ir.Model, target: Target) -> None:
    """Infer shapes for forms, which need sizes: emission leaves them out of recurrent layers and of a -1."""
    shapes = [value.shape for node in model.graph for value in node.outputs]
    if target.forms and not all(shape is not None and shape.is_static() for shape in shapes):
        ShapeInferencePass()(model)


def _form_passes(target: Target) -> list[ComposeOperators]:
    """Return a pass for the first rules of all operators, one for the second, and so on, and one without.

    Rules with `splits_batch` follow all others: the form of another operator may leave no batch to split.
    """
    chosen: list[list[FormRule]] = []
    for splits_batch in (False, True):
        rules: dict[str, list[FormRule]] = defaultdict(list)
        for rule in target.forms:
            if rule.form != STEPS and rule.splits_batch == splits_batch:
                rules[rule.operator].append(rule)
        rounds = itertools.zip_longest(*rules.values())
        chosen += [[rule for rule in rules_of_round if rule is not None] for rules_of_round in rounds]
    replaced = {rule.operator for rules_of_round in chosen for rule in rules_of_round}
    is_taken = target.operators.__contains__
    emission = with_forms(default_registry, target)
    # The last pass gives unsupported operators any form that no rule names.
    return [
        ComposeOperators(
            is_taken,
            default_registry,
            rules_of_round,
            replaced,
            not rules_of_round,
            emission,
            target.batch_operators,
        )
        for rules_of_round in [*chosen, []]
    ]


def _unroll(model: ir.Model, target: Target) -> bool:
    """Unroll recurrent layers that the target lacks or needs as steps, if it supports the steps' operators.

    Returns whether the model was changed.
    """
    if not all(name in target.operators for name in OPERATORS_OF_STEPS):
        return False
    lacking = [name for name in ("GRU", "LSTM", "RNN") if name not in target.operators]
    rules = [rule for rule in target.forms if rule.form == STEPS]
    opset = model.graph.opset_imports.get("", 0)

    def is_chosen(node: ir.Node) -> bool:
        schema = operator_schema(node.op_type, opset)
        return node.op_type in lacking or any(
            rule.operator == node.op_type and schema is not None and rule_matches(rule, node, schema)
            for rule in rules
        )

    op_types = {*lacking, *(rule.operator for rule in rules)}
    return bool(op_types) and _run([UnrollRecurrent(sorted(op_types), True, is_chosen)], model)


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
    # Before the passes below, which read only initializers.
    if (
        conventions.constants == "initializers"
        or conventions.bool_constants
        or conventions.int64_constants
        or conventions.broadcasts
        or conventions.gemm_weights
        or conventions.vector_inputs
    ):
        passes.append(WriteInitializers())
    if CAUSAL_CONVOLUTION in conventions.kernels:
        passes.append(FuseCausalConvolutions())
    if conventions.float_exponents:
        passes.append(AlignExponents(initializers))
    if conventions.gemm_weights is not None:
        passes.append(TransposeGemmWeights(initializers))
    if conventions.broadcasts is not None:
        passes.append(WriteBroadcasts(conventions.broadcasts, initializers))
    if conventions.resize is not None:
        passes.append(ResizeBy(conventions.resize, initializers))
    if conventions.gelu is not None:
        passes.append(HalveGeluInput())
    if conventions.vector_inputs is not None:
        passes.append(ReshapeVectors(initializers))
    if conventions.unshared_constants:
        passes.append(UnshareConstants(conventions.unshared_constants, initializers))
    if conventions.int64_constants is not None:
        passes.append(NarrowConstants(initializers))
    if conventions.bool_constants is not None:
        passes.append(StoreBools(ir.DataType[conventions.bool_constants.upper()], initializers))
    if conventions.recurrent_sequences is not None:
        # Nodes that nothing reads would count as readers of a sequence.
        passes += [RemoveUnused(), SqueezeSequences()]
    if conventions.explicit_attributes:
        passes.append(WriteDefaultAttributes(conventions.explicit_attributes))
    if conventions.constants == "nodes":
        passes.append(WriteConstantNodes())
    return passes

"""Runs the ONNX passes on a graph after lowering."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from .constants.chosen_branches import ChooseBranches
from .constants.equal_initializers import MergeEqualInitializers
from .constants.fold_constants import FoldConstants
from .constants.initializers import Initializers
from .conventions.default_attributes import WriteDefaultAttributes
from .conventions.joined_directions import JoinDirections
from .conventions.recurrent_outputs import CompleteRecurrentOutputs
from .fusions.attention.causal_attention import ReadCausalMasks
from .fusions.attention.fuse_attention import FuseAttention
from .fusions.attention.grouped_heads import GroupHeads
from .fusions.attention.joint_heads import JoinHeads
from .fusions.attention.repeated_heads import GatherHeads
from .fusions.gelu import FuseGelu, OrderGelu
from .fusions.layer_normalization import FuseLayerNormalization
from .fusions.refined_shapes import RefineAndFold
from .fusions.rms_normalization import FuseRMSNormalization
from .fusions.rotary_embedding import FuseRotaryEmbedding
from .fusions.swish import FuseSwiGLU, FuseSwish
from .fusions.top_probabilities import NormalizeTopLogits
from .images.padded_convolutions import CropPadding, FoldPadding
from .images.padded_pooling import SeparatePaddedPools
from .images.single_pixels import RepeatSinglePixels
from .images.whole_pooling import PoolWhole
from .levels import DEFAULT_LEVEL, LEVELS
from .node_pass import NodePass, run_in_order
from .pass_order import OnnxPass, order_runs
from .products.dequantized_weights import DequantizeWeights
from .products.flatten_rows import FlattenRows
from .products.fold_scales import FoldScales
from .products.gemm import WriteGemm
from .products.lifted_rows import LiftRows
from .products.linear_scales import FoldLinearScales
from .products.outer_weights import DequantizeOutside
from .products.parallel_layers import JoinLayers
from .products.quantized_products import SplitQuantizedProducts
from .products.separate_columns import SeparateColumns
from .products.stored_weights import ReadStoredWeights
from .products.vectors import PutVectorsFirst
from .shapes.adjacent_slices import SplitSlices
from .shapes.concatenated_zeros import PadConcatenated
from .shapes.constant_gathers import SimplifyGathers
from .shapes.gated_reshapes import ReshapeFactors
from .shapes.late_broadcasts import BroadcastLate, BroadcastNamed
from .shapes.leading_ones import KeepLeadingOnes, OmitLeadingOnes
from .shapes.rejoined_parts import RejoinParts
from .shapes.reshaped_parts import ReshapeOnce
from .shapes.shape_chains import MergeShapeChains
from .shapes.shared_sizes import ShareSizes
from .shapes.sliced_dimensions import NameSlicedDimensions
from .shapes.split_batches import SplitBatchesEarly
from .simplification.equal_nodes import MergeEqualNodes
from .simplification.exponents import AlignExponents
from .simplification.false_conditions import FindFalseConditions
from .simplification.identities import RemoveIdentities, RemoveIdentityArithmetic
from .simplification.inverted_conditions import ExchangeOperands
from .simplification.inverted_permutations import ScaleRestoredRows, SortPermutations
from .simplification.nan_replacements import RemoveNaNReplacements
from .simplification.reciprocals import DivideByReciprocals
from .simplification.sums_of_squares import SumSquares
from .simplification.uniform_values import RemoveUniformValues
from .simplification.unused_nodes import RemoveUnused
from .transposes.push_transposes import PushTransposes

PASSES: tuple[type[OnnxPass], ...] = (
    RemoveUnused,
    ShareSizes,
    MergeEqualNodes,
    RemoveIdentityArithmetic,
    RemoveIdentities,
    FoldConstants,
    DequantizeWeights,
    DequantizeOutside,
    SplitBatchesEarly,
    PushTransposes,
    FindFalseConditions,
    RemoveUniformValues,
    RepeatSinglePixels,
    PoolWhole,
    MergeShapeChains,
    SimplifyGathers,
    PadConcatenated,
    BroadcastLate,
    BroadcastNamed,
    FoldPadding,
    AlignExponents,
    WriteGemm,
    RefineAndFold,
    FuseAttention,
    ReadCausalMasks,
    FoldScales,
    FoldLinearScales,
    RemoveNaNReplacements,
    FuseGelu,
    FuseSwish,
    FuseSwiGLU,
    OrderGelu,
    FuseLayerNormalization,
    FuseRMSNormalization,
    FuseRotaryEmbedding,
    NormalizeTopLogits,
    SortPermutations,
    ScaleRestoredRows,
    DivideByReciprocals,
    GroupHeads,
    GatherHeads,
    CropPadding,
    SplitSlices,
    SeparateColumns,
    JoinLayers,
    JoinHeads,
    RejoinParts,
    ReshapeOnce,
    ExchangeOperands,
    MergeEqualInitializers,
    ChooseBranches,
    FlattenRows,
    LiftRows,
    ReshapeFactors,
    OmitLeadingOnes,
    KeepLeadingOnes,
    SumSquares,
    ReadStoredWeights,
    JoinDirections,
    SplitQuantizedProducts,
    NameSlicedDimensions,
    SeparatePaddedPools,
    PutVectorsFirst,
    CompleteRecurrentOutputs,
    WriteDefaultAttributes,
)
"""The passes of all levels. `runs` says what must come before each; this sequence decides between others."""
# At import, so that a mistake in `runs` shows before any model is changed.
_RUNS = order_runs(PASSES)
_MAXIMUM_OUTPUTS = 512
"""The maximum outputs of a graph in which repeats and identities are removed: onnx-ir searches all outputs
for each removed node."""


def optimize(
    model: ir.Model,
    initializers: Initializers | None = None,
    level: str = DEFAULT_LEVEL,
    omitted: Collection[str] = (),
    kernels: Collection[str] = (),
) -> bool:
    """Run the ONNX passes of a level; docs/optimization.md describes each.

    Names of graph outputs may move to other values; inputs stay. A graph of more than 512 outputs keeps its
    repeats and identities; otherwise the time would grow with the product of its nodes and outputs.

    Args:
        initializers: the constants that may be folded; by default all initializers.
        level: one of `levels.LEVELS`.
        omitted: the names of passes that do not run.
        kernels: operators that the consumer of the model has kernels of, where onnxruntime may lack them.

    Returns:
        Whether the graph changed.

    Raises:
        OpsettaError: a pass failed, a fault of opsetta. The message names the levels that run without it.
    """
    initializers = initializers or Initializers(model)
    is_small = len(model.graph.outputs) <= _MAXIMUM_OUTPUTS
    passes = _passes_of(level if is_small else "none", initializers, omitted)
    for run in passes:
        if isinstance(run, NodePass):
            run.kernels = kernels

    def remedy_for(failed: ir.passes.PassBase) -> str:
        lower = [name for name in reversed(LEVELS) if LEVELS.index(name) < LEVELS.index(level)]
        free = [name for name in lower if type(failed) not in map(type, _passes_of(name, initializers))]
        return f"It does not run with optimize={' or '.join(map(repr, free))}" if free else ""

    return run_in_order(model, passes, remedy_for)


def _passes_of(level: str, initializers: Initializers, omitted: Collection[str] = ()) -> list[OnnxPass]:
    """The passes of a level, in order."""
    included = LEVELS[: LEVELS.index(level) + 1]
    runs = [run for run in _RUNS if run.run.level in included and run.pass_type.__name__ not in omitted]
    return [run.create(initializers) for run in runs]

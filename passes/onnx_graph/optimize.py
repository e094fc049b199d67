"""Runs the ONNX passes on a graph after lowering."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from .constants.chosen_branches import ChooseBranches
from .constants.equal_initializers import MergeEqualInitializers
from .constants.fold_constants import FoldConstants
from .constants.initializers import Initializers
from .conventions.default_attributes import WriteDefaultAttributes
from .conventions.joined_directions import JoinDirections
from .conventions.recurrent_outputs import CompleteRecurrentOutputs
from .fusions.attention import FuseAttention
from .fusions.gelu import FuseGelu, OrderGelu
from .fusions.grouped_heads import GroupHeads
from .fusions.layer_normalization import FuseLayerNormalization
from .fusions.refined_shapes import RefineShapes
from .fusions.rms_normalization import FuseRMSNormalization
from .fusions.rotary_embedding import FuseRotaryEmbedding
from .images.padded_convolutions import FoldPadding
from .images.padded_pooling import SeparatePaddedPools
from .images.single_pixels import RepeatSinglePixels
from .images.whole_pooling import PoolWhole
from .levels import DEFAULT_LEVEL, LEVELS
from .node_pass import IndexedPass, NodePass, NodesByOperator, run_in_order
from .products.flatten_rows import FlattenRows
from .products.fold_scales import FoldScales
from .products.gemm import WriteGemm
from .products.linear_scales import FoldLinearScales
from .products.quantized_products import SplitQuantizedProducts
from .products.stored_weights import ReadStoredWeights
from .products.vectors import PutVectorsFirst
from .shapes.constant_gathers import SimplifyGathers
from .shapes.late_broadcasts import BroadcastLate
from .shapes.shape_chains import MergeShapeChains
from .shapes.sliced_dimensions import NameSlicedDimensions
from .shapes.split_batches import SplitBatchesEarly
from .simplification.equal_nodes import MergeEqualNodes
from .simplification.exponents import AlignExponents
from .simplification.false_conditions import FindFalseConditions
from .simplification.identities import RemoveIdentityArithmetic
from .simplification.nan_replacements import RemoveNaNReplacements
from .simplification.reciprocals import DivideByReciprocals
from .simplification.uniform_values import RemoveUniformValues
from .simplification.unused_nodes import RemoveUnused
from .transposes.push_transposes import PushTransposes


class _IdentityElimination(NodePass, common.IdentityEliminationPass):
    """Identity elimination that keeps copies by which a sub-graph returns an outer or repeated value."""

    op_types = ("Identity",)

    def rewrite(self, node: ir.Node) -> bool:
        """Remove an Identity."""
        return self._try_eliminate_identity_node(node)

    def _try_eliminate_identity_node(self, node: ir.Node) -> bool:
        source = node.inputs[0] if node.inputs else None
        if source is not None:
            output = node.outputs[0]
            ranks = {len(value.shape) for value in (source, output) if value.shape is not None}
            if len(ranks) > 1:
                return False
            producer = source.producer()
            if output.is_graph_output() and (
                producer is None or producer.graph is not node.graph or source.is_graph_output()
            ):
                return False
        return super()._try_eliminate_identity_node(node)


class _RefineAndFold(IndexedPass):
    """Refines shapes, and folds the values that become constant, such as the masks of shifted windows."""

    def __init__(self, initializers: Initializers):
        super().__init__()
        self._initializers = initializers

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Run both passes; most graphs have nothing to refine, and so nothing new to fold."""
        if not RefineShapes().run(model, nodes):
            return False
        FoldConstants(self._initializers).run(model, nodes)
        return True


_MAXIMUM_OUTPUTS = 512
"""The maximum outputs of a graph in which repeats and identities are removed: onnx-ir searches all outputs
for each removed node."""


def optimize(model: ir.Model, initializers: Initializers | None = None, level: str = DEFAULT_LEVEL) -> bool:
    """Run the ONNX passes of a level; docs/optimization.md describes each.

    Names of graph outputs may move to other values; inputs stay. A graph of more than 512 outputs keeps its
    repeats and identities; otherwise the time would grow with the product of its nodes and outputs.

    Args:
        initializers: the constants that may be folded; by default all initializers.
        level: one of `levels.LEVELS`.

    Returns:
        Whether the graph changed.

    Raises:
        OpsettaError: a pass failed, a fault of opsetta. The message names the levels that run without it.
    """
    initializers = initializers or Initializers(model)
    is_small = len(model.graph.outputs) <= _MAXIMUM_OUTPUTS
    passes = _passes_of(level if is_small else "none", initializers)

    def remedy_for(failed: ir.passes.PassBase) -> str:
        lower = [name for name in reversed(LEVELS) if LEVELS.index(name) < LEVELS.index(level)]
        free = [name for name in lower if type(failed) not in map(type, _passes_of(name, initializers))]
        return f"It does not run with optimize={' or '.join(map(repr, free))}" if free else ""

    return run_in_order(model, passes, remedy_for)


def _passes_of(level: str, initializers: Initializers) -> list[ir.passes.PassBase]:
    """The passes of a level, in order."""
    passes: list[ir.passes.PassBase] = [RemoveUnused()]
    if level != "none":
        passes += _optimizing_passes(initializers, level == "full")
    passes += [
        NameSlicedDimensions(),
        SeparatePaddedPools(),
        PutVectorsFirst(),
        CompleteRecurrentOutputs(),
        WriteDefaultAttributes(),
    ]
    return passes


def _optimizing_passes(initializers: Initializers, is_full: bool) -> list[ir.passes.PassBase]:
    """The passes of "basic", or of "full"."""
    passes: list[ir.passes.PassBase] = [
        MergeEqualNodes(),
        RemoveIdentityArithmetic(initializers),
        _IdentityElimination(),
        WriteGemm(initializers, reshapes=False),
        FoldConstants(initializers),
        SplitBatchesEarly(initializers),
        PushTransposes(initializers),
        # Small results of weights are constants only after they have been folded.
        FoldConstants(initializers),
        FindFalseConditions(initializers),
        RemoveUniformValues(initializers),
        RepeatSinglePixels(),
        PoolWhole(),
        MergeShapeChains(initializers),
        SimplifyGathers(initializers),
        RemoveIdentityArithmetic(initializers),
        _IdentityElimination(),
        # An Expand without effect between a mask and its readers must be gone.
        BroadcastLate(initializers),
        FoldPadding(initializers),
        AlignExponents(initializers),
        WriteGemm(initializers),
    ]
    if is_full:
        # Unused nodes would count as further readers, which prevent fusions.
        passes += [RemoveUnused(initializers=False), _RefineAndFold(initializers)]
        # Attention takes the scale of its scores; FoldScales would move it into weights first.
        passes.append(FuseAttention(initializers))
        # Removing a scale may leave two shape changes in a row, which merge.
        passes += [FoldScales(initializers), FoldLinearScales(initializers), MergeShapeChains(initializers)]
        passes += [
            RemoveNaNReplacements(initializers),
            FuseGelu(),
            OrderGelu(),
            FuseLayerNormalization(initializers),
        ]
        passes += [
            FuseRMSNormalization(),
            FuseRotaryEmbedding(initializers),
            DivideByReciprocals(),
            GroupHeads(),
        ]
        passes.append(MergeEqualInitializers(initializers))
    passes.append(ChooseBranches(initializers))
    # After the folding of scales, because the Reshapes around Gemms would separate scale and product.
    passes += [FlattenRows(initializers), WriteGemm(initializers), ReadStoredWeights(initializers)]
    passes += [JoinDirections(initializers), SplitQuantizedProducts(), RemoveUnused()]
    return passes

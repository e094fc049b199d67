"""Runs the target passes on an ONNX graph after lowering."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
from onnx_ir.passes import common

from ...registration import schemas
from .fold_constants import FoldConstants
from .fold_scales import FoldScales
from .fuse_rms_normalization import FuseRMSNormalization
from .initializers import Initializers
from .padded_pooling import SeparatePaddedPools
from .quantized_products import SplitQuantizedProducts
from .sliced_dimensions import NameSlicedDimensions
from .transposes.push_transposes import PushTransposes


class _CommonSubexpressionElimination(common.CommonSubexpressionEliminationPass):
    """Leaves nodes that may give other results each time: random operators, and those of other domains."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Eliminate what is computed twice in the main graph."""
        opset = model.graph.opset_imports.get("")
        kept = [node for node in model.graph if _may_differ(node, opset)]
        for number, node in enumerate(kept):
            node.attributes[_NUMBER] = ir.AttrInt64(_NUMBER, number)
        try:
            return super().call(model)
        finally:
            for node in kept:
                del node.attributes[_NUMBER]


_NUMBER = "opsetta.number"
"""An attribute that tells nodes apart while equal ones are merged."""


def _may_differ(node: ir.Node, opset: int | None) -> bool:
    if node.domain:
        return True
    schema = schemas.operator_schema(node.op_type, opset) if opset is not None else None
    return schema is None or "seed" in schema.attributes


class _IdentityElimination(common.IdentityEliminationPass):
    """Identity elimination that keeps copies by which a sub-graph returns an outer or repeated value."""

    def _try_eliminate_identity_node(self, node: ir.Node) -> bool:
        source = node.inputs[0] if node.op_type == "Identity" and node.inputs else None
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


_MAXIMUM_OUTPUTS = 512
"""For each node that a pass of onnx-ir removes, it looks through the graph's outputs."""

_PASSES_OF_MANY_OUTPUTS = ir.passes.Sequential(
    common.RemoveUnusedNodesPass(), NameSlicedDimensions(), SeparatePaddedPools()
)


def optimize(model: ir.Model, kept: Collection[ir.Value] = ()) -> bool:
    """Remove dead code, duplicates, identities and Transposes, fold constants, and fuse patterns.

    Names of graph outputs may move to other values; inputs stay. A graph of more than 512 outputs keeps its
    repeats and identities, so that the time stays in proportion to its nodes.

    Args:
        kept: initializers that keep their names and contents.

    Returns:
        Whether the graph changed.
    """
    if len(model.graph.outputs) > _MAXIMUM_OUTPUTS:
        return _PASSES_OF_MANY_OUTPUTS(model).modified
    known = Initializers(model, kept)
    passes = ir.passes.Sequential(
        common.RemoveUnusedNodesPass(),
        _CommonSubexpressionElimination(),
        _IdentityElimination(),
        FoldConstants(known),
        PushTransposes(known),
        FoldScales(known),
        FuseRMSNormalization(),
        SplitQuantizedProducts(),
        common.RemoveUnusedNodesPass(),
        NameSlicedDimensions(),
        SeparatePaddedPools(),
    )
    return passes(model).modified

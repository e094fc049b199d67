"""Target passes: what every ONNX graph goes through after lowering."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from .fuse_rms_normalization import FuseRMSNormalization
from .quantized_products import SplitQuantizedProducts
from .sliced_dimensions import NameSlicedDimensions


class _IdentityElimination(common.IdentityEliminationPass):
    """Leaves the copies that make an outer value, or an output once more, an output of a sub-graph."""

    def _try_eliminate_identity_node(self, node: ir.Node) -> bool:
        source = node.inputs[0] if node.op_type == "Identity" else None
        if source is not None and node.outputs[0].is_graph_output():
            producer = source.producer()
            if producer is None or producer.graph is not node.graph or source.is_graph_output():
                return False
        return super()._try_eliminate_identity_node(node)


_PASSES = ir.passes.Sequential(
    common.RemoveUnusedNodesPass(),
    common.CommonSubexpressionEliminationPass(),
    _IdentityElimination(),
    FuseRMSNormalization(),
    SplitQuantizedProducts(),
    common.RemoveUnusedNodesPass(),
    NameSlicedDimensions(),
)


def optimize(model: ir.Model) -> bool:
    """Remove dead code, repeats and identities, fuse what the opset has an operator for; whether it changed.

    The names of graph outputs may move with their values; inputs and the model's state stay.
    """
    return _PASSES(model).modified

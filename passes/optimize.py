"""Target passes: what every ONNX graph goes through after lowering."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

_PASSES = ir.passes.Sequential(
    common.RemoveUnusedNodesPass(),
    common.CommonSubexpressionEliminationPass(),
    common.IdentityEliminationPass(),
    common.RemoveUnusedNodesPass(),
)


def optimize(model: ir.Model) -> bool:
    """Remove dead code, repeated subexpressions and identities, in place; whether anything changed.

    The names of graph outputs may move with their values; inputs and the model's state stay.
    """
    return _PASSES(model).modified

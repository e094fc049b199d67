"""Target passes: what every ONNX graph goes through after lowering."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from .fuse_rms_normalization import FuseRMSNormalization

_PASSES = ir.passes.Sequential(
    common.RemoveUnusedNodesPass(),
    common.CommonSubexpressionEliminationPass(),
    common.IdentityEliminationPass(),
    FuseRMSNormalization(),
    common.RemoveUnusedNodesPass(),
)


def optimize(model: ir.Model) -> bool:
    """Remove dead code, repeats and identities, fuse what the opset has an operator for; whether it changed.

    The names of graph outputs may move with their values; inputs and the model's state stay.
    """
    return _PASSES(model).modified

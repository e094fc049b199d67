"""ONNX passes: fuse Swish and SwiGLU, written as separate operators, for consumers that have kernels of them.

    x * Sigmoid(x * alpha)         Swish of x, from opset 24
    Swish(x) * y                   SwiGLU of x and y, from opset 28

onnxruntime 1.32 has no kernel of either operator, so that the passes apply only for a target that names them.

1. No intermediate result has another reader or is a graph output.
2. The operands of SwiGLU have the same known shape: the operator does not broadcast.
3. A factor `alpha`, which is a FLOAT attribute, is not that of DOUBLE values.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_shape
from ..node_pass import NodePass, replace_match
from ..pass_order import Run
from ..pattern_matcher import PatternMatch, constant, op, value


class FuseSwish(NodePass):
    """Replaces the composition by Swish."""

    runs = (Run("full", after={"FoldScales": "A factor behind a layer goes into its weights first."}),)
    op_types = ("Mul",)
    writes = "Swish"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in a Mul."""
        match = _SWISH.find(node)
        if match is None or not _has_exact_factor(match):
            return False
        replace_match(node, "Swish", [match["x"]], _attributes(match), self.opset)
        return True


class FuseSwiGLU(NodePass):
    """Replaces the product with a Swish, which may be written as separate operators, by SwiGLU."""

    runs = (Run("full", after={"FuseSwish": "A product that is a Swish itself has no other factor."}),)
    op_types = ("Mul",)
    writes = "SwiGLU"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in a Mul."""
        match = _SWIGLU.find(node)
        if match is None or not _has_exact_factor(match):
            return False
        x, factor = match["x"], match["factor"]
        if not same_shape(x.shape, factor.shape):
            return False
        attributes = [*match.node("swish").attributes.values()] if "swish" in match else _attributes(match)
        replace_match(node, "SwiGLU", [x, factor], attributes, self.opset)
        return True


def _has_exact_factor(match: PatternMatch) -> bool:
    return "alpha" not in match or match["x"].dtype != ir.DataType.DOUBLE


def _attributes(match: PatternMatch) -> list[ir.Attr]:
    return [ir.AttrFloat32("alpha", match.number("alpha"))] if "alpha" in match else []


_X = value("x")
_SWISH = _X * op("Sigmoid", _X | _X * constant("alpha"))
_SWIGLU = (op("Swish", _X).label("swish") | _SWISH) * value("factor")

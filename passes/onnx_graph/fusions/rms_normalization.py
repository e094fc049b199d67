"""ONNX pass: fuses root-mean-square normalization, written as separate operators, into RMSNormalization.

    s = Pow(x, 2) or Mul(x, x) -> ReduceMean over the last dim -> Add(epsilon)
    x / Sqrt(s),  x * Reciprocal(Sqrt(s)),  x * (1 / Sqrt(s)),  x * Pow(s, -0.5)  or  x / Pow(s, 0.5)

followed by `Mul(scale, .)` with a one-dimensional scale. Applies from opset 23, where the operator
begins (https://onnx.ai/onnx/operators/onnx__RMSNormalization.html).

1. No intermediate result has another reader or is a graph output.
2. Without a scale of one dimension the pattern is not fused: the operator needs one.
3. Scale and x have the same element type. A Cast of x to FLOAT before the normalization, and one back before
   the scale, are part of the operator, which computes in FLOAT; other Casts prevent fusion.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass, producer_of, replace_match
from ..pass_order import Run
from ..pattern_matcher import constant, op, value
from .axes import reduces_last_axis

_HALF_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

_X = value("x")
_MEAN = op("ReduceMean", _X**2 | _X * _X, where=lambda node, match: reduces_last_axis(node, match["x"]))
_TOTAL = _MEAN + constant("epsilon")
_ROOT = op("Sqrt", _TOTAL)
_NORMALIZED = _X / (_ROOT | _TOTAL**0.5) | _X * (op("Reciprocal", _ROOT) | 1 / _ROOT | _TOTAL**-0.5)
_RMS_NORMALIZATION = (_NORMALIZED | op("Cast", _NORMALIZED).label("cast")) * value("scale")


class FuseRMSNormalization(NodePass):
    """Replaces the composition by RMSNormalization, if the model's opset has it."""

    runs = (
        Run(
            "full",
            after={
                "FuseLayerNormalization": "The formula is a part of that of LayerNormalization.",
                "FoldScales": "A scale behind a layer goes into its weights first.",
            },
        ),
    )
    op_types = ("Mul",)
    writes = "RMSNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in `node`, the Mul of the normalized value by the scale."""
        match = _RMS_NORMALIZATION.find(node)
        if match is None:
            return False
        x, scale = match["x"], match["scale"]
        if "cast" in match:
            widened = _cast_source(x, match["cast"].dtype)
            if widened is None:
                return False
            x = widened
        if scale.shape is None or len(scale.shape) != 1 or x.dtype is None or x.dtype != scale.dtype:
            return False
        attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", match.number("epsilon"))]
        replace_match(node, "RMSNormalization", [x, scale], attributes, self.opset)
        return True


def _cast_source(wide: ir.Value, narrow_type: ir.DataType | None) -> ir.Value | None:
    """The value in half precision that is cast to FLOAT, the precision in which the operator computes."""
    node = producer_of(wide, "Cast")
    x = node.inputs[0] if node is not None else None
    if x is None or x.dtype not in _HALF_TYPES or wide.dtype != ir.DataType.FLOAT:
        return None
    return x if x.dtype == narrow_type else None

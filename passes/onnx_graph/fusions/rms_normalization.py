"""ONNX pass: fuses root-mean-square normalization, written as separate operators, into RMSNormalization.

    s = Pow(x, 2) or Mul(x, x) -> ReduceMean over the last dim -> Add(epsilon)
    x / Sqrt(s),  x * Reciprocal(Sqrt(s)),  x * (1 / Sqrt(s)),  x * Pow(s, -0.5)  or  x / Pow(s, 0.5)

followed by `Mul(scale, .)` with a one-dimensional scale. Without a scale, ones are written. Applies from
opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__RMSNormalization.html).

1. No intermediate result has another reader or is a graph output.
2. Without a scale of one dimension the size of the last dim of x must be known: the operator needs a scale.
3. Scale and x have the same element type. A Cast of x to FLOAT before the normalization, and one back before
   the scale, are part of the operator, which computes in FLOAT; other Casts prevent fusion.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, producer_of, replace_match
from ..pass_order import Run
from ..pattern_matcher import PatternMatch, constant, op, value
from .axes import reduces_last_axis

_HALF_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_SCALE_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)

_X = value("x")
_MEAN = op("ReduceMean", _X**2 | _X * _X, where=lambda node, match: reduces_last_axis(node, match["x"]))
_TOTAL = _MEAN + constant("epsilon")
_ROOT = op("Sqrt", _TOTAL)
_NORMALIZED = _X / (_ROOT | _TOTAL**0.5) | _X * (op("Reciprocal", _ROOT) | 1 / _ROOT | _TOTAL**-0.5)
_RMS_NORMALIZATION = (_NORMALIZED | op("Cast", _NORMALIZED).label("cast")) * value("scale")


class FuseRMSNormalization(ConstantPass):
    """Replaces the composition by RMSNormalization, if the model's opset has it."""

    runs = (
        Run(
            "full",
            after={
                "FuseLayerNormalization": "The formula is a part of that of LayerNormalization.",
                "FoldScales": "A scale behind a layer goes into its weights first.",
                "RefineAndFold": "The size of the last dimension must be known.",
            },
        ),
    )
    op_types = ("Mul", "Div")
    writes = "RMSNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in `node`: the Mul of the normalized value by the scale, or that value."""
        match = _find_scaled(node)
        if match is None:
            return self._fuse_without_scale(node)
        x, scale = match["x"], match["scale"]
        if "cast" in match:
            widened = _cast_source(x, match["cast"].dtype)
            if widened is None:
                return False
            x = widened
        if x.dtype is None or x.dtype != scale.dtype:
            return False
        self._fuse(node, match, x, scale)
        return True

    def _fuse_without_scale(self, node: ir.Node) -> bool:
        """Fuse the nodes that compute a normalized value, unless a Mul by a scale follows."""
        match = _NORMALIZED.find(node)
        if match is None:
            return False
        x = match["x"]
        size = x.shape[-1] if x.shape else None
        if not isinstance(size, int) or x.dtype not in _SCALE_TYPES:
            return False
        readers = [reader for output in node.outputs for reader, _ in output.uses()]
        readers += [
            reader for cast in readers if cast.op_type == "Cast" for reader, _ in cast.outputs[0].uses()
        ]
        if any(_find_scaled(reader) is not None for reader in readers):
            return False
        scale = np.ones(size, x.dtype.numpy())
        self._fuse(node, match, x, self.initializers.make(scale, "scale"))
        return True

    def _fuse(self, last: ir.Node, match: PatternMatch, x: ir.Value, scale: ir.Value) -> None:
        attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", match.number("epsilon"))]
        replace_match(last, "RMSNormalization", [x, scale], attributes, self.opset)


def _find_scaled(node: ir.Node) -> PatternMatch | None:
    """The match of a normalized value times a scale of one dimension."""
    match = _RMS_NORMALIZATION.find(node) if node.op_type == "Mul" and not node.domain else None
    shape = None if match is None else match["scale"].shape
    return match if shape is not None and len(shape) == 1 else None


def _cast_source(wide: ir.Value, narrow_type: ir.DataType | None) -> ir.Value | None:
    """The value in half precision that is cast to FLOAT, the precision in which the operator computes."""
    node = producer_of(wide, "Cast")
    x = node.inputs[0] if node is not None else None
    if x is None or x.dtype not in _HALF_TYPES or wide.dtype != ir.DataType.FLOAT:
        return None
    return x if x.dtype == narrow_type else None

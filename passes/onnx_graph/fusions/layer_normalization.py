"""ONNX pass: fuses layer normalization, written as separate operators, into LayerNormalization.

    d = Sub(x, ReduceMean(x));  v = ReduceMean(Pow(d, 2) or Mul(d, d));  Div(d, Sqrt(Add(v, epsilon)))

over the last dim, followed by `Mul(., scale)`, and optionally by `Add(., bias)`. Applies from opset 17, where
the operator begins (https://onnx.ai/onnx/operators/onnx__LayerNormalization.html).

1. No intermediate result has a reader outside of the pattern or is a graph output.
2. Scale and bias are constants of one dimension, of the length of the last dim, and of the type of x: FLOAT,
   FLOAT16 or BFLOAT16, which the operator computes in FLOAT.
3. The difference may be computed twice, as some exporters write it.
4. x in half precision, or the difference, may be cast to FLOAT or DOUBLE, and the quotient back.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import ConstantPass, producer_of, replace_match
from ..pass_order import Run
from ..pattern_matcher import Pattern, PatternMatch, constant, op, value
from .axes import reduces_last_axis

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types to which written-out forms cast half precision; the operator computes in FLOAT."""


def _over_last_axis(node: ir.Node, match: PatternMatch) -> bool:
    return reduces_last_axis(node, match["x"])


def _is_wide(node: ir.Node, match: PatternMatch) -> bool:
    return node.outputs[0].dtype in _WIDE


def _subtract_mean(name: str) -> Pattern:
    """The difference of x and its mean, which may be cast."""
    difference = _X - op("ReduceMean", _X, where=_over_last_axis)
    return (difference | op("Cast", difference, where=_is_wide)).label(name)


_X = value("x")
_SQUARED = value("squared")
# Rule 3: two nodes may compute the difference, or one that the quotient reads too.
_VARIANCE = op(
    "ReduceMean", _subtract_mean("squared") ** 2 | _SQUARED * _subtract_mean("squared"), where=_over_last_axis
)
_NORMAL = _subtract_mean("centred") / op("Sqrt", _VARIANCE + constant("epsilon"))
_SCALED = (_NORMAL | op("Cast", _NORMAL).label("cast")) * value("scale")


class FuseLayerNormalization(ConstantPass):
    """Replaces the composition by LayerNormalization, if the model's opset has it."""

    runs = (
        Run(
            "full",
            after={
                "RefineAndFold": "The size of the last dimension must be known.",
                "FoldScales": "A scale behind a layer goes into its weights first.",
            },
        ),
    )
    op_types = ("Mul",)
    writes = "LayerNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes around `node`, the Mul of the normalized value by the scale."""
        match = _SCALED.find(node)
        if match is None:
            return False
        scale, x = match["scale"], match["x"]
        # The operator computes in FLOAT inside, so the casts around the written-out form are part of it.
        if "cast" in match:
            narrow = _narrow(x, match["cast"].dtype)
            if narrow is None:
                return False
            x = narrow
        if x.dtype not in _TYPES or not self._is_vector(scale, x):
            return False
        last, bias = node, None
        result = node.outputs[0]
        # A bias is taken in only if nothing else reads the result without it.
        if len(result.uses()) == 1 and not result.is_graph_output():
            [(reader, index)] = result.uses()
            summand = reader.inputs[1 - index] if reader.op_type == "Add" and not reader.domain else None
            if summand is not None and reader.graph is node.graph and self._is_vector(summand, x):
                last, bias = reader, summand
        attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", match.number("epsilon"))]
        inputs = [x, scale] if bias is None else [x, scale, bias]
        replace_match(last, "LayerNormalization", inputs, attributes, self.opset)
        return True

    def _is_vector(self, value: ir.Value, x: ir.Value) -> bool:
        """Whether a value is a constant with a number for each position along the last dim of x."""
        if (
            not self.initializers.is_constant(value)
            or value.dtype != x.dtype
            or value.shape is None
            or x.shape is None
        ):
            return False
        return len(value.shape) == 1 and len(x.shape) > 0 and value.shape[0] == x.shape[-1]


def _narrow(x: ir.Value, dtype: ir.DataType | None) -> ir.Value | None:
    """X in an element type, from which it may have been cast; None if it does not have that type."""
    if x.dtype == dtype:
        return x
    cast = producer_of(x, "Cast") if x.dtype in _WIDE else None
    before = cast.inputs[0] if cast is not None else None
    return before if before is not None and before.dtype == dtype else None

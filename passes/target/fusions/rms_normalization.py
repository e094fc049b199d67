"""Target pass: fuses root-mean-square normalization, written as separate operators, into RMSNormalization.

    Pow(x, 2) or Mul(x, x) -> ReduceMean over the last dim -> Add(epsilon) -> Sqrt -> Reciprocal -> Mul(x, .)
                                                                              Sqrt -> Div(x, .)

followed by `Mul(scale, .)` with a one-dimensional scale. Applies from opset 23, where the operator
begins (https://onnx.ai/onnx/operators/onnx__RMSNormalization.html).

1. No intermediate result has another reader or is a graph output.
2. Without a scale of one dimension the pattern is not fused: the operator needs one.
3. Scale and x have the same element type; a Cast between them prevents fusion.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass
from .patterns import axes_of, is_last_axis, made_by, number, operands, replace


class FuseRMSNormalization(NodePass):
    """Replaces the composition by RMSNormalization, if the model's opset has it."""

    op_types = ("Mul",)
    writes = "RMSNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in `node`, the Mul of the normalized value by the scale."""
        for form in ("Mul", "Div"):
            found = operands(node, form)
            chain = _normalization(found[0]) if found is not None else None
            if found is None or chain is None:
                continue
            scale, (x, epsilon) = found[1], chain
            if scale.shape is None or len(scale.shape) != 1 or x.dtype is None or x.dtype != scale.dtype:
                return False
            attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon)]
            replace(node, "RMSNormalization", [x, scale], attributes, self.opset)
            return True
        return False


def _normalization(last: ir.Node) -> tuple[ir.Value, float] | None:
    """X and epsilon of `x / sqrt(mean(x**2) + epsilon)`."""
    if last.op_type == "Div":
        x, root = last.inputs[0], made_by(last.inputs[1], "Sqrt")
    else:
        found = operands(last, "Reciprocal")
        x, root = (None, None) if found is None else (found[1], made_by(found[0].inputs[0], "Sqrt"))
    shifted = made_by(root.inputs[0], "Add") if root is not None else None
    summands = operands(shifted, "ReduceMean") if shifted is not None else None
    if x is None or summands is None:
        return None
    mean, epsilon = summands[0], number(summands[1])
    if epsilon is None or not _is_square(mean.inputs[0], x) or not is_last_axis(axes_of(mean), x):
        return None
    return x, epsilon


def _is_square(value: ir.Value | None, x: ir.Value) -> bool:
    power = made_by(value, "Pow")
    if power is not None and power.inputs[0] is x and number(power.inputs[1]) == 2:
        return True
    product = made_by(value, "Mul")
    return product is not None and all(operand is x for operand in product.inputs)

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

from ..node_pass import NodePass
from .patterns import exclusive_producer, is_last_axis, number, operands, reduced_axes, replace

_HALF_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class FuseRMSNormalization(NodePass):
    """Replaces the composition by RMSNormalization, if the model's opset has it."""

    op_types = ("Mul",)
    writes = "RMSNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes that end in `node`, the Mul of the normalized value by the scale."""
        for form in ("Mul", "Div", "Cast"):
            match = operands(node, form)
            chain = _normalization(match[0]) if match is not None else None
            if match is None or chain is None:
                continue
            scale, (x, epsilon) = match[1], chain
            if scale.shape is None or len(scale.shape) != 1 or x.dtype is None or x.dtype != scale.dtype:
                return False
            attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon)]
            replace(node, "RMSNormalization", [x, scale], attributes, self.opset)
            return True
        return False


def _normalization(last: ir.Node) -> tuple[ir.Value, float] | None:
    """X and epsilon of `x / sqrt(mean(x**2) + epsilon)`."""
    if last.op_type == "Cast":
        return _cast_normalization(last)
    # A quotient has one order of operands, a product two.
    for x, factor in (last.inputs, last.inputs[::-1])[: 2 if last.op_type == "Mul" else 1]:
        shifted = _square_root_sum(factor, is_inverse=last.op_type == "Mul")
        summands = operands(shifted, "ReduceMean") if shifted is not None else None
        if x is None or summands is None:
            continue
        mean, epsilon = summands[0], number(summands[1])
        if epsilon is not None and _is_square(mean.inputs[0], x) and is_last_axis(reduced_axes(mean), x):
            return x, epsilon
    return None


def _cast_normalization(cast: ir.Node) -> tuple[ir.Value, float] | None:
    """X and epsilon, if x is cast to FLOAT before, and the result back to the type of x."""
    last = exclusive_producer(cast.inputs[0], "Mul", "Div")
    wide_match = _normalization(last) if last is not None else None
    node = wide_match[0].producer() if wide_match is not None else None
    if wide_match is None or node is None or node.op_type != "Cast" or node.domain:
        return None
    x, wide = node.inputs[0], wide_match[0]
    # Only FLOAT inside matches the precision of the operator.
    if x is None or x.dtype not in _HALF_TYPES or wide.dtype != ir.DataType.FLOAT:
        return None
    return (x, wide_match[1]) if cast.outputs[0].dtype == x.dtype else None


def _square_root_sum(value: ir.Value | None, is_inverse: bool) -> ir.Node | None:
    """The Add whose square root a value is, or the inverse of the square root."""
    power = exclusive_producer(value, "Pow")
    if power is not None:
        exponent = number(power.inputs[1])
        return (
            exclusive_producer(power.inputs[0], "Add") if exponent == (-0.5 if is_inverse else 0.5) else None
        )
    if is_inverse:
        inverse = exclusive_producer(value, "Reciprocal", "Div")
        if inverse is None or (inverse.op_type == "Div" and number(inverse.inputs[0]) != 1):
            return None
        value = inverse.inputs[-1]
    root = exclusive_producer(value, "Sqrt")
    return exclusive_producer(root.inputs[0], "Add") if root is not None else None


def _is_square(value: ir.Value | None, x: ir.Value) -> bool:
    power = exclusive_producer(value, "Pow")
    if power is not None and power.inputs[0] is x and number(power.inputs[1]) == 2:
        return True
    product = exclusive_producer(value, "Mul")
    return product is not None and all(operand is x for operand in product.inputs)

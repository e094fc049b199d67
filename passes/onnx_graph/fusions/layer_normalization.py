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

from ..node_pass import ConstantPass
from .patterns import exclusive_producer, is_last_axis, number, operands, reduced_axes, replace

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types to which written-out forms cast half precision; the operator computes in FLOAT."""


class FuseLayerNormalization(ConstantPass):
    """Replaces the composition by LayerNormalization, if the model's opset has it."""

    op_types = ("Mul",)
    writes = "LayerNormalization"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the nodes around `node`, the Mul of the normalized value by the scale."""
        match = operands(node, "Div") or operands(node, "Cast")
        chain = _normalization(match[0]) if match is not None else None
        if match is None or chain is None:
            return False
        scale, (x, epsilon) = match[1], chain
        if x.dtype not in _TYPES or not self._is_vector(scale, x):
            return False
        last, bias = node, None
        result = node.outputs[0]
        if len(result.uses()) == 1 and not result.is_graph_output():
            [(reader, index)] = result.uses()
            summand = reader.inputs[1 - index] if reader.op_type == "Add" and not reader.domain else None
            if summand is not None and reader.graph is node.graph and self._is_vector(summand, x):
                last, bias = reader, summand
        attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon)]
        replace(
            last,
            "LayerNormalization",
            [x, scale, bias] if bias is not None else [x, scale],
            attributes,
            self.opset,
        )
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


def _normalization(last: ir.Node) -> tuple[ir.Value, float] | None:
    """X and epsilon of `(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon)`, perhaps cast back."""
    quotient = exclusive_producer(last.inputs[0], "Div") if last.op_type == "Cast" else last
    if quotient is None:
        return None
    root = exclusive_producer(quotient.inputs[1], "Sqrt")
    shifted = exclusive_producer(root.inputs[0], "Add") if root is not None else None
    summands = operands(shifted, "ReduceMean") if shifted is not None else None
    if summands is None:
        return None
    variance, epsilon = summands[0], number(summands[1])
    centred = quotient.inputs[0]
    squared = _root_of_square(variance.inputs[0])
    if epsilon is None or centred is None or squared is None:
        return None
    x = _centring_source(centred, 1 if squared is not centred else None)
    if x is None or (squared is not centred and _centring_source(squared, None) is not x):
        return None
    if not is_last_axis(reduced_axes(variance), x):
        return None
    narrow = x if last is quotient else _narrow(x, last.outputs[0].dtype)
    return None if narrow is None else (narrow, epsilon)


def _narrow(x: ir.Value, dtype: ir.DataType | None) -> ir.Value | None:
    """X in an element type, from which it may have been cast; None if it does not have that type."""
    if x.dtype == dtype:
        return x
    cast = x.producer()
    if cast is None or cast.op_type != "Cast" or cast.domain or x.dtype not in _WIDE:
        return None
    before = cast.inputs[0]
    return before if before is not None and before.dtype == dtype else None


def _root_of_square(value: ir.Value | None) -> ir.Value | None:
    power = exclusive_producer(value, "Pow")
    if power is not None and number(power.inputs[1]) == 2:
        return power.inputs[0]
    product = exclusive_producer(value, "Mul")
    return product.inputs[0] if product is not None and product.inputs[0] is product.inputs[1] else None


def _centring_source(value: ir.Value, readers: int | None) -> ir.Value | None:
    """The x of `x - mean(x)` over the last dim; read by nothing but the quotient and the square."""
    node = value.producer()
    if node is None or node.op_type not in ("Sub", "Cast") or node.domain or value.is_graph_output():
        return None
    # Another reader would keep the difference, so that the fusion would save little.
    if any(reader.op_type not in ("Div", "Pow", "Mul") for reader, _ in value.uses()):
        return None
    if len({reader for reader, _ in value.uses()}) > (2 if readers is None else readers):
        return None
    if node.op_type == "Cast":
        # Only the difference is cast: its mean has the element type of x.
        node = exclusive_producer(node.inputs[0], "Sub") if value.dtype in _WIDE else None
        if node is None:
            return None
    x, mean = node.inputs
    reduction = mean.producer() if mean is not None else None
    if (
        x is None
        or mean is None
        or reduction is None
        or reduction.op_type != "ReduceMean"
        or reduction.domain
    ):
        return None
    if mean.is_graph_output() or any(reader.op_type != "Sub" for reader, _ in mean.uses()):
        return None
    return x if reduction.inputs[0] is x and is_last_axis(reduced_axes(reduction), x) else None

"""ONNX pass: fuses rotary embedding, written as separate operators, into RotaryEmbedding.

    x * cos + Concat(-x[..., d/2:], x[..., :d/2]) * sin

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html).

1. x has four dimensions, [batch, heads, length, d].
2. cos and sin are constants, or are computed. They have the element type of x, and are the same for all
   heads. Their two halves along d are equal: the operator reads one half, which `rotary_tables` finds.
3. No intermediate result has another reader or is a graph output, apart from the halves of x.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import ConstantPass
from .patterns import exclusive_producer, is_last_axis, replace
from .rotary_tables import RotaryTables

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


class FuseRotaryEmbedding(ConstantPass):
    """Replaces the composition by RotaryEmbedding, if the model's opset has it."""

    op_types = ("Add",)
    writes = "RotaryEmbedding"

    def begin(self, model: ir.Model) -> bool:
        """Forget the tables of another model."""
        self._tables = RotaryTables(self.initializers)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the pattern that ends in an Add."""
        products = [exclusive_producer(value, "Mul") for value in node.inputs]
        # Addition commutes, so either summand may be the rotated one.
        for direct, rotated in (products, products[::-1]):
            rotation = _rotation(direct, rotated)
            if rotation is None:
                continue
            x, *tables = rotation
            if x.shape is None or len(x.shape) != 4 or x.dtype not in _TYPES:
                return False
            if any(table.dtype != x.dtype for table in tables):
                return False
            halves = [self._tables.table(table, x, node) for table in tables]
            if any(half is None for half in halves):
                return False
            replace(node, "RotaryEmbedding", [x, *halves], [], self.opset)
            return True
        return False


def _rotation(direct: ir.Node | None, rotated: ir.Node | None) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """X and the two tables of `x * cosine + Concat(-upper half of x, lower half of x) * sine`."""
    if direct is None or rotated is None:
        return None
    for swapped, sine in (rotated.inputs, rotated.inputs[::-1]):
        join = exclusive_producer(swapped, "Concat")
        if join is None or sine is None or len(join.inputs) != 2:
            continue
        negated = exclusive_producer(join.inputs[0], "Neg")
        for x, cosine in (direct.inputs, direct.inputs[::-1]):
            if x is None or cosine is None or negated is None or not _is_last(join, x):
                continue
            if _is_half(join.inputs[1], x, 0) and _is_half(negated.inputs[0], x, 1):
                return x, cosine, sine
    return None


def _is_last(node: ir.Node, x: ir.Value) -> bool:
    axis = node.attributes.get("axis")
    return axis is not None and is_last_axis([axis.as_int()], x)


def _is_half(value: ir.Value | None, x: ir.Value, half: int) -> bool:
    """Whether a value is the lower (0) or upper (1) half of x along the last dim."""
    node = value.producer() if value is not None else None
    if node is None or node.domain or node.inputs[0] is not x or x.shape is None or value is None:
        return False
    size, last = x.shape[-1], len(x.shape) - 1
    if not isinstance(size, int):
        return False
    if node.op_type == "Split":
        is_even = value.shape is not None and value.shape[-1] == size // 2
        return is_even and len(node.outputs) == 2 and node.outputs[half] is value and _is_last(node, x)
    numbers = [_integer(bound) for bound in node.inputs[1:]]
    if node.op_type != "Slice" or len(numbers) not in (3, 4) or None in numbers:
        return False
    # The bounds of a Slice may be negative, or beyond the end.
    start, end, _ = slice(numbers[0], numbers[1]).indices(size)
    expected = (0, size // 2) if half == 0 else (size // 2, size)
    return (start, end) == expected and numbers[2] in (-1, last) and numbers[3:] in ([], [1])


def _integer(value: ir.Value | None) -> int | None:
    tensor = value.const_value if value is not None else None
    return int(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None

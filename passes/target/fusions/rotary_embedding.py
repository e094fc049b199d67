"""Target pass: fuses rotary embedding, written as separate operators, into RotaryEmbedding.

    x * cos + Concat(-x[..., d/2:], x[..., :d/2]) * sin

Applies from opset 23, where the operator begins (https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html).

1. x has four dimensions, [batch, heads, length, d], of which all but the heads are known.
2. cos and sin are constants of the element type of x, and the same for all heads. Their two halves along d
   are equal: the operator reads one half.
3. No intermediate result has another reader or is a graph output, apart from the halves of x.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass
from .patterns import made_by, replace

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_MAXIMUM_ELEMENTS = 2**20
"""Larger tables of angles are not read."""


class FuseRotaryEmbedding(ConstantPass):
    """Replaces the composition by RotaryEmbedding, if the model's opset has it."""

    op_types = ("Add",)
    writes = "RotaryEmbedding"

    def rewrite(self, node: ir.Node) -> bool:
        """Fuse the pattern that ends in an Add."""
        products = [made_by(value, "Mul") for value in node.inputs]
        for direct, turned in (products, products[::-1]):
            found = _rotation(direct, turned)
            if found is None:
                continue
            x, cosine, sine = found
            halves = [(table, self._half(table, x)) for table in (cosine, sine)]
            if any(half is None for _, half in halves):
                return False
            tables = [
                self.known.make(half, f"{table.name}_half") for table, half in halves if half is not None
            ]
            replace(node, "RotaryEmbedding", [x, *tables], [], self.opset)
            return True
        return False

    def _half(self, table: ir.Value, x: ir.Value) -> np.ndarray | None:
        """One half of a table, [batch, length, d / 2]; None if the operator does not take the table."""
        shape, tensor = x.shape, table.const_value
        if shape is None or len(shape) != 4 or x.dtype not in _TYPES or table.dtype != x.dtype:
            return None
        batch, _, length, size = shape
        if not (isinstance(batch, int) and isinstance(length, int) and isinstance(size, int)) or size % 2:
            return None
        if tensor is None or not self.known.is_constant(table) or batch * length * size > _MAXIMUM_ELEMENTS:
            return None
        sizes = (*[1] * (4 - len(tensor.shape)), *tensor.shape.numpy())
        if len(sizes) != 4 or sizes[0] not in (1, batch) or sizes[1:] != (1, length, size):
            return None
        first, second = np.split(tensor.numpy().reshape(sizes)[:, 0], 2, axis=-1)
        if not np.array_equal(first, second):
            return None
        half: np.ndarray = np.broadcast_to(first, (batch, length, size // 2))
        return half


def _rotation(direct: ir.Node | None, turned: ir.Node | None) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """X and the two tables of `x * cosine + Concat(-upper half of x, lower half of x) * sine`."""
    if direct is None or turned is None:
        return None
    for swapped, sine in (turned.inputs, turned.inputs[::-1]):
        join = made_by(swapped, "Concat")
        if join is None or sine is None or len(join.inputs) != 2:
            continue
        negated = made_by(join.inputs[0], "Neg")
        for x, cosine in (direct.inputs, direct.inputs[::-1]):
            if x is None or cosine is None or negated is None or not _is_last(join, x):
                continue
            if _is_half(join.inputs[1], x, 0) and _is_half(negated.inputs[0], x, 1):
                return x, cosine, sine
    return None


def _is_last(node: ir.Node, x: ir.Value) -> bool:
    axis = node.attributes.get("axis")
    return x.shape is not None and axis is not None and axis.as_int() in (-1, len(x.shape) - 1)


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
    numbers = [_integer(each) for each in node.inputs[1:]]
    if node.op_type != "Slice" or len(numbers) not in (3, 4) or None in numbers:
        return False
    # The bounds of a Slice may be counted from the end, or lie behind it.
    start, end, _ = slice(numbers[0], numbers[1]).indices(size)
    wanted = (0, size // 2) if half == 0 else (size // 2, size)
    return (start, end) == wanted and numbers[2] in (-1, last) and numbers[3:] in ([], [1])


def _integer(value: ir.Value | None) -> int | None:
    tensor = value.const_value if value is not None else None
    return int(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None

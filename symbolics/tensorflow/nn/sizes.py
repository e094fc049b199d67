"""The sizes in a tensor, as ints if they are known."""

from __future__ import annotations

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value
from ...compositions.size_arithmetic import Size


def listed_sizes(g: GraphContext, sizes: Value, count: int) -> list[Size]:
    """The sizes in a one-dimensional tensor: ints if constant, else zero-dim INT64 values.

    A Concat of constants and computed sizes gives a mixture.
    """
    known = _constant_sizes(g, sizes, count)
    return [item if item is not None else _element(g, sizes, at) for at, item in enumerate(known)]


def _element(g: GraphContext, sizes: Value, at: int) -> Value:
    none = g.constant([], DataType.INT64)
    item = g.op("Reshape", g.cast(g.op("Gather", sizes, at, axis=0), DataType.INT64), none)
    item.shape = ir.Shape([])
    return item


def _constant_sizes(g: GraphContext, sizes: Value, count: int) -> list[int | None]:
    array = g.constant_value(sizes)
    if array is not None:
        if min(array.reshape(-1), default=1) < 1:
            raise g.refuse(f"the sizes {array.reshape(-1).tolist()} are not all positive")
        return [int(item) for item in array.reshape(-1)]
    node = sizes.producer()
    if node is not None and node.op_type in ("Cast", "Identity") and node.inputs[0] is not None:
        return _constant_sizes(g, node.inputs[0], count)
    if node is None or node.op_type != "Concat":
        return [None] * count
    found: list[int | None] = []
    for part in node.inputs:
        shape = None if part is None else g.shape(part)
        if part is None or shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            return [None] * count
        found += _constant_sizes(g, part, shape[0])
    return found if len(found) == count else [None] * count

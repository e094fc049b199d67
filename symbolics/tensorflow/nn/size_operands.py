"""Reads the sizes in an operand, as ints if they are constant."""

import onnx_ir as ir

from ....registration import DataType, GraphContext, Value
from ...compositions.size_arithmetic import Size


def list_sizes(g: GraphContext, sizes: Value, count: int) -> list[Size]:
    """The sizes in a one-dimensional tensor: ints if constant, else zero-dim INT64 values.

    The sizes in a Concat of constants and computed sizes may be of both kinds.
    """
    constant_sizes = _constant_sizes(g, sizes, count)
    return [
        item if item is not None else _element(g, sizes, index) for index, item in enumerate(constant_sizes)
    ]


def _element(g: GraphContext, sizes: Value, index: int) -> Value:
    scalar_shape = g.constant([], DataType.INT64)
    size = g.op("Reshape", g.cast(g.op("Gather", sizes, index, axis=0), DataType.INT64), scalar_shape)
    size.shape = ir.Shape([])
    return size


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
    concatenated_sizes: list[int | None] = []
    for part in node.inputs:
        shape = None if part is None else g.shape(part)
        if part is None or shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            return [None] * count
        concatenated_sizes += _constant_sizes(g, part, shape[0])
    return concatenated_sizes if len(concatenated_sizes) == count else [None] * count

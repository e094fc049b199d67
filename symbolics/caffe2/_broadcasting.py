"""Caffe2's legacy broadcasting: the second operand has consecutive dimensions of the first operand."""

from ...registration import DataType, GraphContext, Value


def axis_of(g: GraphContext, axis: int, axis_str: str, order: str) -> int:
    """The axis of the first operand at which the second one's dimensions begin; -1 aligns them at the end."""
    if not axis_str:
        return axis
    if axis != -1:
        raise g.refuse("it has both axis and axis_str, where Caffe2 allows only one")
    if len(axis_str) != 1 or axis_str not in order:
        raise g.refuse(f"axis_str '{axis_str}' is not a dimension of the order {order}")
    return order.index(axis_str)


def align_operand(g: GraphContext, A: Value, B: Value, axis: int) -> Value:
    """Reshape B so that ONNX's broadcasting aligns its first dimension with `axis` of A.

    A tensor of one element broadcasts like a scalar, whatever its rank.
    """
    shape, rank = g.shape(B), g.rank(A)
    if shape is not None and all(size == 1 for size in shape):
        return B if len(shape) <= 1 else g.op("Reshape", B, [1])
    if axis == -1:
        return B
    if shape is not None and rank is not None:
        trailing = rank - axis - len(shape)
        if trailing < 0 or axis < 0:
            raise g.refuse(
                f"its second operand has {len(shape)} dimensions, which do not fit at axis {axis} of a "
                f"tensor with {rank} dimensions"
            )
        second_rank = len(shape)
        return g.op("Unsqueeze", B, axes=list(range(second_rank, second_rank + trailing))) if trailing else B
    second_shape = g.op("Shape", B)
    count = g.op("Sub", g.op("Sub", g.op("Size", g.op("Shape", A)), axis), g.op("Size", second_shape))
    trailing_ones = g.op("Expand", g.constant([1], DataType.INT64), g.op("Reshape", count, [1]))
    return g.op("Reshape", B, g.op("Concat", second_shape, trailing_ones, axis=0))


def legacy_operand(
    g: GraphContext, A: Value, B: Value, broadcast: int, axis: int, axis_str: str, order: str
) -> Value:
    """Align the second operand of a binary operator; without `broadcast`, ONNX's broadcasting applies."""
    return align_operand(g, A, B, axis_of(g, axis, axis_str, order)) if broadcast else B


def along_channels(g: GraphContext, X: Value, item: Value, order: str) -> Value:
    """Reshape a vector over channels to broadcast against [N, C, …] or [N, …, C]."""
    return align_operand(g, X, item, 1 if order == "NCHW" else -1)

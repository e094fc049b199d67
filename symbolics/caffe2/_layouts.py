"""Storage orders: NCHW, which ONNX uses, and NHWC, for which tensors are transposed before and after."""

from collections.abc import Sequence

from ...registration import GraphContext, Value
from ..compositions.size_arithmetic import set_shape as set_shape

ORDERS = ("NCHW", "NHWC")


def is_channels_last(g: GraphContext, order: str) -> bool:
    """Whether channels are last in a storage order."""
    if order not in ORDERS:
        raise g.refuse(f"argument 'order' must be {' or '.join(ORDERS)}, not '{order}'")
    return order == "NHWC"


def _transpose(g: GraphContext, value: Value, perm: Sequence[int]) -> Value:
    return g.op("Transpose", value, perm=list(perm))


def to_channels_first(g: GraphContext, value: Value, order: str, rank: int = 4) -> Value:
    """Transpose from a storage order to [N, C, spatial...]; an unknown rank is assumed to be `rank`."""
    if not is_channels_last(g, order):
        return value
    rank = g.rank(value) or rank
    return _transpose(g, value, [0, rank - 1, *range(1, rank - 1)])


def from_channels_first(g: GraphContext, value: Value, order: str, rank: int = 4) -> Value:
    """Transpose from [N, C, spatial...] to a storage order; an unknown rank is assumed to be `rank`."""
    if not is_channels_last(g, order):
        return value
    rank = g.rank(value) or rank
    return _transpose(g, value, [0, *range(2, rank), 1])


def set_shape_like(value: Value, reference: Value) -> Value:
    """Set the shape of the value to that of another one if emission did not infer it."""
    return set_shape(value, None if reference.shape is None else reference.shape.dims)

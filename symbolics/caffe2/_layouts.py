"""Storage orders: NCHW as ONNX has it, and NHWC, around which tensors are transposed."""

from collections.abc import Sequence

import onnx_ir as ir

from ...registration import GraphContext, Value

ORDERS = ("NCHW", "NHWC")


def is_channels_last(g: GraphContext, order: str) -> bool:
    """Whether a storage order has the channels last.

    Raises:
        UnsupportedError: the order is not one of Caffe2's.
    """
    if order not in ORDERS:
        raise g.refuse(f"argument 'order' is '{order}', and Caffe2 has {' and '.join(ORDERS)}")
    return order == "NHWC"


def _transposed(g: GraphContext, value: Value, perm: Sequence[int]) -> Value:
    return g.op("Transpose", value, perm=list(perm))


def to_channels_first(g: GraphContext, value: Value, order: str, rank: int = 4) -> Value:
    """A value in a storage order as [N, C, spatial...]; an unknown rank counts as `rank`."""
    if not is_channels_last(g, order):
        return value
    rank = g.rank(value) or rank
    return _transposed(g, value, [0, rank - 1, *range(1, rank - 1)])


def from_channels_first(g: GraphContext, value: Value, order: str, rank: int = 4) -> Value:
    """A value of [N, C, spatial...] in a storage order; an unknown rank counts as `rank`."""
    if not is_channels_last(g, order):
        return value
    rank = g.rank(value) or rank
    return _transposed(g, value, [0, *range(2, rank), 1])


def shaped(value: Value, dims: Sequence[int | ir.SymbolicDim | None]) -> Value:
    """The value with these sizes, where emission does not know its shape."""
    if value.shape is None:
        value.shape = ir.Shape(list(dims))
    return value


def shaped_like(value: Value, other: Value) -> Value:
    """The value with the shape of another, where emission does not know its shape."""
    if value.shape is None and other.shape is not None:
        value.shape = ir.Shape(other.shape.dims)
    return value


def is_used(g: GraphContext, output: int) -> bool:
    """Whether anything reads this output of the source node."""
    if len(g.expected) <= output:
        return False
    value = g.expected[output]
    return bool(value.uses()) or value.is_graph_output()

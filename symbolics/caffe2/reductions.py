"""Reductions, and the largest elements."""

from collections.abc import Sequence

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import axis_from_front

_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")


def _register_reduction(name: str) -> None:
    def reduction(g: GraphContext, X: Value, axes: Sequence[int] = (), keepdims: int = 1) -> Value:
        positive_axes = [axis_from_front(g, X, axis) for axis in axes]
        return g.op(name, X, axes=positive_axes or None, keepdims=int(bool(keepdims)))

    onnx_symbolic(f"caffe2::{name}")(reduction)


for _name in _REDUCTIONS:
    _register_reduction(_name)


def _register_position(name: str) -> None:
    def position(g: GraphContext, X: Value, axis: int = -1, keepdims: int = 1) -> Value:
        positive_axis = axis_from_front(g, X, axis)
        return g.op(name, X, axis=positive_axis, keepdims=int(bool(keepdims)))

    onnx_symbolic(f"caffe2::{name}")(position)


for _name in ("ArgMax", "ArgMin"):
    _register_position(_name)


@onnx_symbolic("caffe2::TopK")
def topk(g: GraphContext, X: Value, k: Value | int, axis: int = -1) -> list[Value]:
    """Returns values and positions. Refused for fewer than `k` elements, where Caffe2 pads with 0 and -1."""
    positive_axis = axis_from_front(g, X, axis)
    shape = g.shape(X)
    size = shape[positive_axis] if shape is not None else None
    if isinstance(k, int) and isinstance(size, int) and k > size:
        raise g.refuse(f"its k is {k}, but its input has only {size} elements")
    count = k if isinstance(k, int) else g.op("Reshape", g.cast(k, DataType.INT64), [1])
    values, positions = g.op(
        "TopK", X, count if isinstance(count, Value) else [count], axis=positive_axis, outputs=2
    )
    return [values, positions]

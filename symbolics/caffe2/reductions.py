"""Reductions, and the largest elements."""

from collections.abc import Sequence

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import axis_from_front


def _register_reduction(name: str) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def reduction(g: GraphContext, X: Value, axes: Sequence[int] = (), keepdims: int = 1) -> Value:
        positive_axes = [axis_from_front(g, X, axis) for axis in axes]
        return g.op(name, X, axes=positive_axes or None, keepdims=int(bool(keepdims)))


def _register_position(name: str) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def position(g: GraphContext, X: Value, axis: int = -1, keepdims: int = 1) -> Value:
        return g.op(name, X, axis=axis_from_front(g, X, axis), keepdims=int(bool(keepdims)))


def _register_reduction_of_dimensions(name: str, op_type: str, is_front: bool) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def reduction_of_dimensions(
        g: GraphContext, X: Value, lengths: Value | None = None, num_reduce_dim: int = 1
    ) -> Value:
        """Reduces the first or the last dimensions."""
        if lengths is not None:
            raise g.refuse("lengths that limit the reduced elements are not supported")
        if num_reduce_dim == 0:
            return X
        # Before opset 11 axes cannot count from the end, so the rank must be known.
        first = 0 if is_front else axis_from_front(g, X, -num_reduce_dim)
        return g.op(op_type, X, axes=list(range(first, first + num_reduce_dim)), keepdims=0)


for _name in ("Sum", "Mean"):
    _register_reduction_of_dimensions(f"ReduceFront{_name}", f"Reduce{_name}", is_front=True)
    _register_reduction_of_dimensions(f"ReduceBack{_name}", f"Reduce{_name}", is_front=False)
for _name in ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"):
    _register_reduction(_name)
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
    # ONNX's TopK takes K as a vector of one element.
    count = k if isinstance(k, int) else g.op("Reshape", g.cast(k, DataType.INT64), [1])
    return g.op("TopK", X, count if isinstance(count, Value) else [count], axis=positive_axis, outputs=2)

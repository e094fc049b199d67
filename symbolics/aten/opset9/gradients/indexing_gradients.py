"""Gradients of operators that read a part of a tensor: pad with zeros."""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, fold_size, sizes_of

_END = 2**62
"""Ends of slices from here on mean the end of the dimension."""


def _pad_part(g: GraphContext, part: Value, sizes: list[Size], dim: int, start: int, end: int) -> Value:
    """A part with zeros before and after it along one dimension."""
    size = sizes[dim]
    assert isinstance(size, int)
    begins, ends = [0] * len(sizes), [0] * len(sizes)
    begins[dim], ends[dim] = start, size - end
    return g.call("composed::pad", self=part, begins=begins, ends=ends, value=0.0)


@onnx_symbolic("aten::select_backward")
def select_backward(
    g: GraphContext, grad_output: Value, input_sizes: list[int | Value], dim: int, index: int | Value
) -> Value:
    sizes = [fold_size(g, size) for size in input_sizes]
    axis, position = dim % len(sizes), fold_size(g, index)
    size = sizes[axis]
    if isinstance(position, int) and isinstance(size, int):
        # Padding with zeros needs no tensor of zeros to write into.
        row = g.op("Unsqueeze", grad_output, axes=[axis])
        return _pad_part(g, row, sizes, axis, position % size, position % size + 1)
    zeros = g.call("aten::zeros", size=sizes, dtype=g.dtype(grad_output))
    return g.call("aten::select_scatter", self=zeros, src=grad_output, dim=axis, index=position)


@onnx_symbolic("aten::slice_backward")
def slice_backward(
    g: GraphContext,
    grad_output: Value,
    input_sizes: list[int | Value],
    dim: int,
    start: int | Value,
    end: int | Value,
    step: int | Value,
) -> Value:
    sizes = [fold_size(g, size) for size in input_sizes]
    axis, begin, stop = dim % len(sizes), fold_size(g, start), fold_size(g, end)
    size = sizes[axis]
    if step == 1 and isinstance(size, int) and isinstance(begin, int) and isinstance(stop, int):
        begin, stop, _ = slice(begin, min(stop, _END)).indices(size)
        return _pad_part(g, grad_output, sizes, axis, begin, max(stop, begin))
    zeros = g.call("aten::zeros", size=sizes, dtype=g.dtype(grad_output))
    return g.call(
        "aten::slice_scatter", self=zeros, src=grad_output, dim=axis, start=begin, end=stop, step=step
    )


@onnx_symbolic("aten::embedding_dense_backward")
def embedding_dense_backward(
    g: GraphContext,
    grad_output: Value,
    indices: Value,
    num_weights: int | Value,
    padding_idx: int | Value,
    scale_grad_by_freq: bool,
) -> Value:
    """Sum the rows of each index, except the padding index.

    If the opset has no ScatterND with a sum, multiply by the one-hot matrix of the indices.
    """
    dtype = g.dtype(grad_output) or DataType.FLOAT
    width = sizes_of(g, grad_output)[-1]
    rows = g.op("Reshape", grad_output, g.stack([-1, width]))
    flat = g.cast(g.op("Reshape", indices, [-1]), DataType.INT64)
    if scale_grad_by_freq:
        is_equal = g.op("Equal", g.op("Unsqueeze", flat, axes=[1]), g.op("Unsqueeze", flat, axes=[0]))
        # Every row is divided by the number of times that its index occurs.
        counts = g.op("ReduceSum", g.cast(is_equal, dtype), axes=[1], keepdims=1)
        rows = g.op("Div", rows, counts)
    if padding_idx != -1:
        is_real_index = g.op("Not", g.op("Equal", flat, padding_idx))
        rows = g.op("Mul", rows, g.op("Unsqueeze", g.cast(is_real_index, dtype), axes=[1]))
    if g.has("ScatterND", reduction="add"):
        zeros = g.call("aten::zeros", size=[num_weights, width], dtype=dtype)
        return g.call("composed::accumulate_rows", zeros, flat, rows)
    positions = g.call("sym::range", start=0, end=num_weights)
    one_hot = g.op("Equal", g.op("Unsqueeze", positions, axes=[1]), g.op("Unsqueeze", flat, axes=[0]))
    return g.op("MatMul", g.cast(one_hot, dtype), rows)

"""Adaptive pooling: windows as even as may be, of which there is a given number along each dimension.

Semantics: aten/src/ATen/native/AdaptivePooling.h (`start_index`, `end_index`).
"""

from collections.abc import Sequence

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...sizes import Size, compute, dimension, known, same
from ..sliding import largest_at
from ..windows import spatial_sizes
from .pooling import Window, as_batch, is_used, pooled


def _intervals(g: GraphContext, size: Size, count: Size) -> tuple[Value, Value]:
    """Where the windows begin and end along one dimension, `[count]` each."""
    numbers, total = g.call("sym::range", start=0, end=count), g.constant(size)
    starts = g.op("Div", g.op("Mul", numbers, total), g.constant(count))
    ends = g.op("Add", g.op("Mul", g.op("Add", numbers, 1), total), g.constant(compute(g, "sub", count, 1)))
    return starts, g.op("Div", ends, g.constant(count))


def _even_window(sizes: list[int] | None, counts: Sequence[Size]) -> Window | None:
    """The window that adaptive pooling amounts to where every size is a multiple of its count."""
    numbers = [count for count in counts if isinstance(count, int)]
    if sizes is None or len(numbers) < len(counts):
        return None
    if any(size % count or not size for size, count in zip(sizes, numbers, strict=True)):
        return None
    kernel = [size // count for size, count in zip(sizes, numbers, strict=True)]
    return Window(kernel, kernel, [0] * len(kernel), [1] * len(kernel), False)


def _averaged_along(g: GraphContext, input: Value, axis: int, rank: int, count: Size) -> Value:
    """Means over slices of one axis, as a product with a matrix.

    Batch and channels trade places where the axis is the last but one: onnxruntime makes a swap of the last
    two axes alone one operator with MatMul, which does not take an empty batch.
    """
    matrix = _averaging_matrix(g, g.size(input, axis), count, g.dtype(input) or DataType.FLOAT)
    if axis == rank - 1:
        return g.op("MatMul", input, matrix)
    perm = list(range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    if axis == rank - 2:
        perm[:2] = 1, 0
    return g.op("Transpose", g.op("MatMul", g.op("Transpose", input, perm=perm), matrix), perm=perm)


def _averaging_matrix(g: GraphContext, size: Size, count: Size, dtype: DataType) -> Value:
    """What each of `size` elements adds to each of `count` means."""
    if isinstance(size, int) and isinstance(count, int):
        g.reserve(size, count)
        weights = np.zeros((size, count))
        for i in range(count):
            start, end = i * size // count, -(-(i + 1) * size // count)
            weights[start:end, i] = 1 / (end - start)
        return g.constant(weights, dtype)
    starts, ends = _intervals(g, size, count)
    places = g.op("Unsqueeze", g.call("sym::range", start=0, end=size), axes=[1])
    inside = g.op("And", g.op("Not", g.op("Less", places, starts)), g.op("Less", places, ends))
    return g.op("Div", g.cast(inside, dtype), g.cast(g.op("Sub", ends, starts), dtype))


def _averaged(g: GraphContext, input: Value, counts: list[Size]) -> Value:
    """Means of one axis after the other: windows are products of intervals."""
    rank = len(counts) + 2
    shape = g.shape(input)
    for axis, count in enumerate(counts, start=2):
        if not isinstance(count, Value) and count == 1:
            input = g.op("ReduceMean", input, axes=[axis], keepdims=1)
        elif shape is None or not same(dimension(count), shape[axis]):
            input = _averaged_along(g, input, axis, rank, count)
    return input


def _counts(g: GraphContext, output_size: Sequence[int | Value], dimensions: int) -> list[Size]:
    """The number of windows along each dimension; a lone one is meant for all of them."""
    counts = [known(g, count) for count in output_size]
    return counts * dimensions if len(counts) == 1 else counts


def _register_adaptive_avg_pool(dimensions: int, *names: str) -> None:
    def adaptive_avg_pool(g: GraphContext, self: Value, output_size: list[int | Value]) -> Value:
        counts = _counts(g, output_size, dimensions)
        batched, restored = as_batch(g, self, dimensions)
        if set(counts) == {1}:
            return restored(g.op("GlobalAveragePool", batched))
        window = _even_window(spatial_sizes(g, batched, dimensions), counts)
        if window is not None:
            return restored(g.op("AveragePool", batched, **window.attributes))
        return restored(_averaged(g, batched, counts))

    for name in names:
        onnx_symbolic(f"aten::{name}")(adaptive_avg_pool)


def _position_of_largest(g: GraphContext, input: Value, dimensions: int) -> Value:
    """The position of the largest element of each plane, [N, C, 1, ...]."""
    flat = g.op("Reshape", input, [0, 0, -1])
    position = g.op("ArgMax", flat, axis=2, keepdims=1)
    return g.op("Unsqueeze", position, axes=list(range(3, dimensions + 2))) if dimensions > 1 else position


def _largest(g: GraphContext, input: Value, counts: list[Size], indices: bool) -> tuple[Value, Value | None]:
    """The largest element of each window, and its position in its plane.

    Windows are taken out of the input as long as the longest may be; their last element fills shorter ones.
    """
    positions, lengths = [], []
    for axis, count in enumerate(counts, start=2):
        size = g.size(input, axis)
        starts, ends = _intervals(g, size, count)
        length = compute(g, "floordiv", compute(g, "add", size, compute(g, "sub", count, 1)), count)
        evenly = isinstance(size, int) and isinstance(count, int) and size % count == 0
        lengths.append(length if evenly else compute(g, "add", length, 1))
        offsets = g.call("sym::range", start=0, end=lengths[-1])
        places = g.op("Add", g.op("Unsqueeze", starts, axes=[1]), offsets)
        last = g.op("Unsqueeze", g.op("Sub", ends, 1), axes=[1])
        positions.append(g.op("Where", g.op("Greater", places, last), last, places))
    return largest_at(g, input, positions, counts, lengths, indices)


def _register_adaptive_max_pool(dimensions: int) -> None:
    def adaptive_max_pool(
        g: GraphContext, self: Value, output_size: list[int | Value]
    ) -> tuple[Value, Value | None]:
        counts = _counts(g, output_size, dimensions)
        batched, restored = as_batch(g, self, dimensions)
        if set(counts) == {1}:
            values = restored(g.op("GlobalMaxPool", batched))
            if not is_used(g, 1):
                return values, None
            return values, restored(_position_of_largest(g, batched, dimensions))
        sizes = spatial_sizes(g, batched, dimensions)
        window = _even_window(sizes, counts)
        if window is not None:
            values, indices = pooled(g, batched, window, indices=is_used(g, 1))
            return restored(values), None if indices is None else restored(indices)
        values, indices = _largest(g, batched, counts, is_used(g, 1))
        return restored(values), None if indices is None else restored(indices)

    onnx_symbolic(f"aten::adaptive_max_pool{dimensions}d")(adaptive_max_pool)


for _dimensions in (1, 2, 3):
    _register_adaptive_max_pool(_dimensions)
_register_adaptive_avg_pool(1, "adaptive_avg_pool1d")
_register_adaptive_avg_pool(2, "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
_register_adaptive_avg_pool(3, "adaptive_avg_pool3d", "_adaptive_avg_pool3d")

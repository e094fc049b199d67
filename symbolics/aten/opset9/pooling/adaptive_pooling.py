"""Adaptive pooling: a given number of windows, as even as possible, along each dimension.

Semantics: aten/src/ATen/native/AdaptivePooling.h (`start_index`, `end_index`).
"""

from collections.abc import Sequence

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.outputs import is_used
from ....compositions.size_arithmetic import Size, compute, dimension, fold_size, same_size
from ....compositions.spatial.sliding import largest_at
from ....compositions.spatial.windows import spatial_sizes
from .windows import PoolingWindow, as_batch, max_pool_windows


def _intervals(g: GraphContext, size: Size, count: Size) -> tuple[Value, Value]:
    """The start and end of each window along one dimension, `[count]` each."""
    numbers, total = g.call("sym::range", start=0, end=count), g.constant(size)
    # onnxruntime refuses a division by 0 even if there are no windows.
    divisor = g.constant(compute(g, "max", count, 1))
    starts = g.op("Div", g.op("Mul", numbers, total), divisor)
    ends = g.op("Add", g.op("Mul", g.op("Add", numbers, 1), total), g.constant(compute(g, "sub", count, 1)))
    return starts, g.op("Div", ends, divisor)


def _positions(g: GraphContext, size: Size, count: Size, starts: Value, ends: Value) -> tuple[Value, Size]:
    """Positions of the elements of each window, `[count, length]`, and the length of the longest one.

    Shorter windows repeat their last element.
    """
    rounded_up = compute(g, "add", size, compute(g, "sub", count, 1))
    length = compute(g, "floordiv", rounded_up, compute(g, "max", count, 1))
    # Windows that do not divide the size may be longer by one element.
    if not (isinstance(size, int) and isinstance(count, int) and size % count == 0):
        length = compute(g, "add", length, 1)
    positions = g.op("Add", g.op("Unsqueeze", starts, axes=[1]), g.call("sym::range", start=0, end=length))
    last = g.op("Unsqueeze", g.op("Sub", ends, 1), axes=[1])
    return g.op("Where", g.op("Greater", positions, last), last, positions), length


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    """The start and end of each window."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _regular(size: int, count: int) -> tuple[int, int] | None:
    """The kernel and stride of windows with equal lengths and distances; None for others."""
    bounds = _bounds(size, count)
    kernel = bounds[0][1]
    stride = bounds[1][0] if count > 1 else kernel
    regular = [(i * stride, i * stride + kernel) for i in range(count)]
    # A pooling operator must give the same number of windows, too.
    if not stride or bounds != regular or (size - kernel) // stride + 1 != count:
        return None
    return kernel, stride


def _window(
    g: GraphContext, batched: Value, counts: Sequence[Size], overlapping: bool
) -> PoolingWindow | None:
    """The ordinary pooling window that gives the same result, with its own stride if windows may overlap."""
    sizes = spatial_sizes(g, batched, len(counts))
    numbers = [count for count in counts if isinstance(count, int)]
    if sizes is None or len(numbers) < len(counts):
        return None
    windows = [_regular(size, count) for size, count in zip(sizes, numbers, strict=True)]
    pairs = [pair for pair in windows if pair is not None]
    if len(pairs) < len(windows) or not (overlapping or all(kernel == stride for kernel, stride in pairs)):
        return None
    kernel, stride = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return PoolingWindow(kernel, stride, [0] * len(kernel), [1] * len(kernel), False)


_LAID_OUT = 8
"""Up to this number, windows along a dimension are sliced one by one."""


def _average_along(g: GraphContext, input: Value, axis: int, rank: int, count: Size) -> Value:
    """Means over slices of one axis. A product with a matrix would spread NaN and infinity."""
    size = g.size(input, axis)
    if isinstance(size, int) and isinstance(count, int) and count <= _LAID_OUT:
        slices = [
            g.call("aten::slice", self=input, dim=axis, start=start, end=end)
            for start, end in _bounds(size, count)
        ]
        means = [g.op("ReduceMean", part, axes=[axis], keepdims=1) for part in slices]
        return g.op("Concat", *means, axis=axis)
    starts, ends = _intervals(g, size, count)
    positions, length = _positions(g, size, count, starts, ends)
    numbers = g.call("sym::range", start=0, end=length)
    lengths = g.op("Unsqueeze", g.op("Sub", ends, starts), axes=[1])
    trailing_axes = list(range(2, rank - axis + 1))

    def broadcast(value: Value) -> Value:
        return g.op("Unsqueeze", value, axes=trailing_axes) if trailing_axes else value

    windows = g.op("Gather", input, positions, axis=axis)
    inside = broadcast(g.op("Less", numbers, lengths))
    # Repeated elements must not count twice in a sum.
    windows = g.call("composed::where", condition=inside, self=windows, other=0)
    total = g.op("ReduceSum", windows, axes=[axis + 1], keepdims=0)
    lengths = g.op("Squeeze", broadcast(lengths), axes=[1])
    return g.op("Div", total, g.cast(lengths, g.dtype(input) or DataType.FLOAT))


def _average(g: GraphContext, input: Value, counts: list[Size]) -> Value:
    """Means of one axis after the other: windows are products of intervals."""
    rank = len(counts) + 2
    shape = g.shape(input)
    for axis, count in enumerate(counts, start=2):
        if not isinstance(count, Value) and count == 1:
            input = g.op("ReduceMean", input, axes=[axis], keepdims=1)
        elif shape is None or not same_size(dimension(count), shape[axis]):
            input = _average_along(g, input, axis, rank, count)
    return input


def _counts(g: GraphContext, output_size: Sequence[int | Value], dimensions: int) -> list[Size]:
    """The number of windows along each dimension; a single one applies to all of them."""
    counts = [fold_size(g, count) for count in output_size]
    return counts * dimensions if len(counts) == 1 else counts


def _is_empty(counts: Sequence[Size]) -> bool:
    return any(isinstance(count, int) and count == 0 for count in counts)


def _empty(g: GraphContext, batched: Value, counts: Sequence[Size], dtype: DataType | None) -> Value:
    """The result without any windows."""
    return g.call("aten::zeros", size=[g.size(batched, 0), g.size(batched, 1), *counts], dtype=dtype)


def _register_adaptive_avg_pool(dimensions: int, *names: str) -> None:
    @onnx_symbolic([f"aten::{name}" for name in names])
    def adaptive_avg_pool(g: GraphContext, self: Value, output_size: list[int | Value]) -> Value:
        counts = _counts(g, output_size, dimensions)
        batched, restore = as_batch(g, self, dimensions)
        has_kernel = g.has_kernel("AveragePool", self)
        # One window is the whole plane, for which runtimes have an operator without sizes.
        if set(counts) == {1} and has_kernel:
            return restore(g.op("GlobalAveragePool", batched))
        if _is_empty(counts):
            return restore(_empty(g, batched, counts, g.dtype(self)))
        window = _window(g, batched, counts, overlapping=True) if has_kernel else None
        if window is not None:
            return restore(g.op("AveragePool", batched, **window.attributes))
        return restore(_average(g, batched, counts))


def _largest(g: GraphContext, input: Value, counts: list[Size], indices: bool) -> tuple[Value, Value | None]:
    """The largest element of each window, and its position in its plane.

    Gathers windows as long as the longest one; shorter ones repeat their last element.
    """
    positions, lengths = [], []
    for axis, count in enumerate(counts, start=2):
        size = g.size(input, axis)
        axis_positions, length = _positions(g, size, count, *_intervals(g, size, count))
        positions.append(axis_positions)
        lengths.append(length)
    return largest_at(g, input, positions, counts, lengths, indices)


def _register_adaptive_max_pool(dimensions: int) -> None:
    @onnx_symbolic(f"aten::adaptive_max_pool{dimensions}d")
    def adaptive_max_pool(
        g: GraphContext, self: Value, output_size: list[int | Value]
    ) -> tuple[Value, Value | None]:
        counts = _counts(g, output_size, dimensions)
        batched, restore = as_batch(g, self, dimensions)
        if set(counts) == {1}:
            if g.has_kernel("GlobalMaxPool", batched):
                values = restore(g.op("GlobalMaxPool", batched))
            else:
                axes = list(range(2, dimensions + 2))
                values = restore(g.op("ReduceMax", batched, axes=axes, keepdims=1))
            if not is_used(g, 1):
                return values, None
            # ATen's positions count the elements of a plane.
            position = g.op("ArgMax", g.op("Reshape", batched, [0, 0, -1]), axis=2, keepdims=1)
            if dimensions > 1:
                position = g.op("Unsqueeze", position, axes=list(range(3, dimensions + 2)))
            return values, restore(position)
        if _is_empty(counts):
            values = restore(_empty(g, batched, counts, g.dtype(self)))
            return values, restore(_empty(g, batched, counts, DataType.INT64))
        window = _window(g, batched, counts, overlapping=False)
        if window is not None:
            values, indices = max_pool_windows(g, batched, window, indices=is_used(g, 1))
            return restore(values), None if indices is None else restore(indices)
        values, indices = _largest(g, batched, counts, is_used(g, 1))
        return restore(values), None if indices is None else restore(indices)


for _dimensions in (1, 2, 3):
    _register_adaptive_max_pool(_dimensions)
_register_adaptive_avg_pool(1, "adaptive_avg_pool1d")
_register_adaptive_avg_pool(2, "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
_register_adaptive_avg_pool(3, "adaptive_avg_pool3d", "_adaptive_avg_pool3d")

"""Pooling over windows, and adaptive pooling."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....registration import GraphContext, Value, onnx_symbolic
from ..windows import is_unbatched, per_dimension, spatial_sizes


@dataclasses.dataclass(frozen=True)
class Window:
    """A pooling window, with one number per spatial dimension in each list."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool

    @classmethod
    def of(
        cls,
        dimensions: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> "Window":
        kernel = per_dimension(kernel_size, dimensions)
        return cls(
            kernel,
            per_dimension(stride, dimensions) if stride else kernel,
            per_dimension(padding, dimensions),
            per_dimension(dilation, dimensions),
            ceil_mode,
        )

    def right_pads(self, sizes: list[int]) -> list[int]:
        """Pads on the right that make a floor of ATen's ceil (`pooling_output_shape`).

        A last window counts when it begins inside the input or its left padding.
        """
        result = []
        for size, k, s, p, d in zip(
            sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            extent = d * (k - 1) + 1
            count = -(-(size + 2 * p - extent) // s) + 1
            if (count - 1) * s >= size + p:
                count -= 1
            result.append(max(p, (count - 1) * s + extent - size - p))
        return result

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "dilations": self.dilation if set(self.dilation) != {1} else None,
        }

    def pads(self, g: GraphContext, input: Value) -> dict[str, Any]:
        """The pads, and `ceil_mode` where the sizes are unknown or the pads would outgrow the window."""
        if self.ceil_mode:
            sizes = spatial_sizes(g, input, len(self.kernel))
            right = None if sizes is None else self.right_pads(sizes)
            if right is None or any(pad >= k for pad, k in zip(right, self.kernel, strict=True)):
                return {"pads": self.padding * 2, "ceil_mode": 1}
            return {"pads": self.padding + right}
        return {"pads": self.padding * 2}


def _batched(g: GraphContext, input: Value, dimensions: int) -> tuple[Value, Callable[[Value], Value]]:
    """The input with a batch dimension, and what takes it away from a result again."""
    if not is_unbatched(g, input, dimensions):
        return input, lambda value: value
    return g.op("Unsqueeze", input, axes=[0]), lambda value: g.op("Squeeze", value, axes=[0])


def _is_used(g: GraphContext, output: int) -> bool:
    """Whether anything uses this output of the source node."""
    if len(g.expected) <= output:
        return False
    value = g.expected[output]
    return bool(value.uses()) or value.is_graph_output()


def _within_plane(g: GraphContext, indices: Value, input: Value, dimensions: int) -> Value:
    """Positions in the whole tensor, as MaxPool gives them, as positions in their own plane."""
    rank = dimensions + 2
    sizes = [g.size(input, axis) for axis in range(2, rank)]
    plane = functools.reduce(lambda a, b: g.op("Mul", a, b), [g.constant(size) for size in sizes])
    return g.op("Sub", indices, g.op("Mul", g.op("Div", indices, plane), plane))


def _max_pool(g: GraphContext, input: Value, dimensions: int, window: Window) -> Value:
    batched, restored = _batched(g, input, dimensions)
    return restored(g.op("MaxPool", batched, **window.attributes, **window.pads(g, batched)))


def _max_pool_with_indices(
    g: GraphContext, input: Value, dimensions: int, window: Window
) -> tuple[Value, Value | None]:
    if not _is_used(g, 1):
        return _max_pool(g, input, dimensions, window), None
    batched, restored = _batched(g, input, dimensions)
    values, indices = g.op("MaxPool", batched, **window.attributes, **window.pads(g, batched), outputs=2)
    return restored(values), restored(_within_plane(g, indices, batched, dimensions))


def _register_max_pools(dimensions: int) -> None:
    def max_pool(
        g: GraphContext,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Value:
        window = Window.of(dimensions, kernel_size, stride, padding, dilation, ceil_mode)
        return _max_pool(g, self, dimensions, window)

    def max_pool_with_indices(
        g: GraphContext,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[Value, Value | None]:
        window = Window.of(dimensions, kernel_size, stride, padding, dilation, ceil_mode)
        return _max_pool_with_indices(g, self, dimensions, window)

    onnx_symbolic(f"aten::max_pool{dimensions}d")(max_pool)
    onnx_symbolic(f"aten::max_pool{dimensions}d_with_indices")(max_pool_with_indices)


def _zero_padded(g: GraphContext, input: Value, padding: list[int]) -> Value:
    pads = [0, 0, *padding]
    return g.op("Pad", input, pads=pads * 2, mode="constant", value=0.0)


def _avg_pool(
    g: GraphContext,
    input: Value,
    dimensions: int,
    window: Window,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Value:
    batched, restored = _batched(g, input, dimensions)
    sizes = spatial_sizes(g, batched, dimensions)
    padding = window.padding
    right = padding
    if window.ceil_mode:
        if sizes is None:
            return restored(
                _avg_pool_of_unknown_size(g, batched, window, count_include_pad, divisor_override)
            )
        right = window.right_pads(sizes)
    if divisor_override is not None:
        pads = padding + right
        summed = g.op("AveragePool", batched, **window.attributes, pads=pads, count_include_pad=1)
        return restored(g.op("Mul", summed, math.prod(window.kernel) / divisor_override))
    if right != padding and any(padding) and count_include_pad:
        # ATen counts its own padding, and not what lies beyond it: the padding becomes part of the input.
        batched = _zero_padded(g, batched, padding)
        right = [max(r - p, 0) for r, p in zip(right, padding, strict=True)]
        padding = [0] * dimensions
    includes = count_include_pad and right == padding
    result = g.op(
        "AveragePool", batched, **window.attributes, pads=padding + right, count_include_pad=int(includes)
    )
    return restored(result)


def _avg_pool_of_unknown_size(
    g: GraphContext, input: Value, window: Window, count_include_pad: bool, divisor_override: int | None
) -> Value:
    """With `ceil_mode`, where windows over the right edge count what they cover and padding does not."""
    if divisor_override is not None or (count_include_pad and any(window.padding)):
        raise g.refuse("ceil_mode with padding or divisor_override needs the spatial sizes to be known")
    return g.op(
        "AveragePool", input, **window.attributes, pads=window.padding * 2, ceil_mode=1, count_include_pad=0
    )


@onnx_symbolic("aten::avg_pool1d")
def avg_pool1d(
    g: GraphContext,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    window = Window.of(1, kernel_size, stride, padding, [1], ceil_mode)
    return _avg_pool(g, self, 1, window, count_include_pad)


def _register_avg_pool(dimensions: int) -> None:
    def avg_pool(
        g: GraphContext,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        window = Window.of(dimensions, kernel_size, stride, padding, [1], ceil_mode)
        return _avg_pool(g, self, dimensions, window, count_include_pad, divisor_override)

    onnx_symbolic(f"aten::avg_pool{dimensions}d")(avg_pool)


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    """The windows of adaptive pooling along one dimension (ATen's `start_index`, `end_index`)."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _even_window(sizes: list[int] | None, counts: list[int]) -> Window | None:
    """The window that adaptive pooling amounts to where every size is a multiple of its count."""
    if sizes is None or any(size % count or not size for size, count in zip(sizes, counts, strict=True)):
        return None
    kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
    return Window(kernel, kernel, [0] * len(kernel), [1] * len(kernel), False)


def _averaged_along(
    g: GraphContext, input: Value, axis: int, rank: int, bounds: list[tuple[int, int]]
) -> Value:
    """Means over slices of one axis, as a product with a constant matrix.

    Batch and channels trade places where the axis is the last but one: onnxruntime makes a swap of the last
    two axes alone one operator with MatMul, which does not take an empty batch.
    """
    weights = np.zeros((bounds[-1][1], len(bounds)))
    for column, (start, end) in enumerate(bounds):
        weights[start:end, column] = 1 / (end - start)
    matrix = g.constant(weights, g.dtype(input))
    if axis == rank - 1:
        return g.op("MatMul", input, matrix)
    perm = list(range(rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    if axis == rank - 2:
        perm[:2] = 1, 0
    return g.op("Transpose", g.op("MatMul", g.op("Transpose", input, perm=perm), matrix), perm=perm)


def _adaptive_along_axes(
    g: GraphContext,
    input: Value,
    dimensions: int,
    counts: list[int],
    reduction: str,
    along: Callable[[GraphContext, Value, int, int, list[tuple[int, int]]], Value],
) -> Value:
    """Adaptive pooling of one axis after the other: its windows are products of intervals."""
    rank = dimensions + 2
    shape = g.shape(input)
    for axis, count in enumerate(counts, start=2):
        size = None if shape is None else shape[axis]
        if count == 1:
            input = g.op(reduction, input, axes=[axis], keepdims=1)
        elif not isinstance(size, int):
            raise g.refuse(f"adaptive pooling to size {count} needs spatial dimension {axis - 2} to be known")
        elif size != count:
            input = along(g, input, axis, rank, _bounds(size, count))
    return input


def _register_adaptive_avg_pool(dimensions: int, *names: str) -> None:
    def adaptive_avg_pool(g: GraphContext, self: Value, output_size: list[int]) -> Value:
        counts = per_dimension(output_size, dimensions)
        batched, restored = _batched(g, self, dimensions)
        if set(counts) == {1}:
            return restored(g.op("GlobalAveragePool", batched))
        window = _even_window(spatial_sizes(g, batched, dimensions), counts)
        if window is not None:
            return restored(g.op("AveragePool", batched, **window.attributes))
        return restored(_adaptive_along_axes(g, batched, dimensions, counts, "ReduceMean", _averaged_along))

    for name in names:
        onnx_symbolic(f"aten::{name}")(adaptive_avg_pool)


def _largest_along(
    g: GraphContext, input: Value, axis: int, rank: int, bounds: list[tuple[int, int]]
) -> Value:
    """Maxima over slices of one axis."""
    slices = [g.op("Slice", input, starts=[start], ends=[end], axes=[axis]) for start, end in bounds]
    return g.op("Concat", *(g.op("ReduceMax", part, axes=[axis], keepdims=1) for part in slices), axis=axis)


def _position_of_largest(g: GraphContext, input: Value, dimensions: int) -> Value:
    """The position of the largest element of each plane, [N, C, 1, ...]."""
    flat = g.op("Reshape", input, [0, 0, -1])
    position = g.op("ArgMax", flat, axis=2, keepdims=1)
    return g.op("Unsqueeze", position, axes=list(range(3, dimensions + 2))) if dimensions > 1 else position


def _positions_of_largest(g: GraphContext, input: Value, sizes: list[int], counts: list[int]) -> Value:
    """The position in its plane of the largest element of each window, window by window."""
    plane = np.arange(math.prod(sizes)).reshape(sizes)
    axes = list(range(2, len(sizes) + 2))
    found = []
    for bounds in itertools.product(*map(_bounds, sizes, counts)):
        starts, ends = zip(*bounds, strict=True)
        window = g.op("Slice", input, starts=list(starts), ends=list(ends), axes=axes)
        largest = g.op("ArgMax", g.op("Reshape", window, [0, 0, -1]), axis=2, keepdims=1)
        positions = plane[tuple(slice(start, end) for start, end in bounds)].reshape(-1)
        found.append(g.op("Gather", g.constant(positions), largest, axis=0))
    return g.op("Reshape", g.op("Concat", *found, axis=2), [0, 0, *counts])


def _register_adaptive_max_pool(dimensions: int) -> None:
    def adaptive_max_pool(g: GraphContext, self: Value, output_size: list[int]) -> tuple[Value, Value | None]:
        counts = per_dimension(output_size, dimensions)
        batched, restored = _batched(g, self, dimensions)
        if set(counts) == {1}:
            largest = restored(g.op("GlobalMaxPool", batched))
            if not _is_used(g, 1):
                return largest, None
            return largest, restored(_position_of_largest(g, batched, dimensions))
        sizes = spatial_sizes(g, batched, dimensions)
        window = _even_window(sizes, counts)
        if window is not None and not _is_used(g, 1):
            return restored(g.op("MaxPool", batched, **window.attributes)), None
        if window is not None:
            values, indices = g.op("MaxPool", batched, **window.attributes, outputs=2)
            return restored(values), restored(_within_plane(g, indices, batched, dimensions))
        values = _adaptive_along_axes(g, batched, dimensions, counts, "ReduceMax", _largest_along)
        if not _is_used(g, 1):
            return restored(values), None
        if sizes is None:
            raise g.refuse("the indices of adaptive pooling need the spatial sizes to be known")
        return restored(values), restored(_positions_of_largest(g, batched, sizes, counts))

    onnx_symbolic(f"aten::adaptive_max_pool{dimensions}d")(adaptive_max_pool)


for _dimensions in (1, 2, 3):
    _register_max_pools(_dimensions)
    _register_adaptive_max_pool(_dimensions)
_register_avg_pool(2)
_register_avg_pool(3)
_register_adaptive_avg_pool(1, "adaptive_avg_pool1d")
_register_adaptive_avg_pool(2, "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
_register_adaptive_avg_pool(3, "adaptive_avg_pool3d", "_adaptive_avg_pool3d")

"""Pooling over windows, and adaptive pooling."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic, schemas
from ...sizes import Size, compute, dimension, known, same
from ..sliding import Slide, largest
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


def _has_kernel(g: GraphContext, input: Value) -> bool:
    """Whether runtimes have a MaxPool for the element type; onnxruntime's first one is of FLOAT."""
    dtype = g.dtype(input)
    if dtype in (DataType.INT64, DataType.UINT64):
        return False
    return dtype not in (DataType.DOUBLE, DataType.INT32, DataType.UINT32) or _outputs(g) > 1


def _outputs(g: GraphContext) -> int:
    schema = schemas.operator_schema("MaxPool", g.opset)
    return 0 if schema is None else len(schema.outputs)


def _says(g: GraphContext, op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Whether the operator has these attributes at this opset."""
    schema = schemas.operator_schema(op_type, g.opset)
    wanted = (name for name, value in attributes.items() if value is not None)
    return schema is not None and all(name in schema.attributes for name in wanted)


def _pooled(g: GraphContext, input: Value, window: Window, indices: bool) -> tuple[Value, Value | None]:
    """MaxPool, and where it cannot say it, the largest of windows that are taken out of the input.

    Positions are those in their own plane.
    """
    attributes = {**window.attributes, **window.pads(g, input)}
    if not _has_kernel(g, input) or not _says(g, "MaxPool", attributes) or (indices and _outputs(g) < 2):
        slides = [
            Slide.pooling(g, g.size(input, 2 + index), *numbers, window.ceil_mode)
            for index, numbers in enumerate(
                zip(window.kernel, window.stride, window.padding, window.dilation, strict=True)
            )
        ]
        return largest(g, input, slides, indices)
    if not indices:
        return g.op("MaxPool", input, **attributes), None
    values, found = g.op("MaxPool", input, **attributes, outputs=2)
    return values, _within_plane(g, found, input, len(window.kernel))


def _max_pool(g: GraphContext, input: Value, dimensions: int, window: Window) -> Value:
    batched, restored = _batched(g, input, dimensions)
    return restored(_pooled(g, batched, window, indices=False)[0])


def _max_pool_with_indices(
    g: GraphContext, input: Value, dimensions: int, window: Window
) -> tuple[Value, Value | None]:
    batched, restored = _batched(g, input, dimensions)
    values, indices = _pooled(g, batched, window, indices=_is_used(g, 1))
    return restored(values), None if indices is None else restored(indices)


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
    if g.dtype(input) in dtypes.INTEGERS:
        return restored(_windowed_average(g, batched, window, count_include_pad, divisor_override))
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


def _windowed_average(
    g: GraphContext, input: Value, window: Window, count_include_pad: bool, divisor_override: int | None
) -> Value:
    return g.call(
        "composed::windowed_average",
        input,
        window.kernel,
        window.stride,
        window.padding,
        window.ceil_mode,
        count_include_pad,
        divisor_override,
    )


def _avg_pool_of_unknown_size(
    g: GraphContext, input: Value, window: Window, count_include_pad: bool, divisor_override: int | None
) -> Value:
    """With `ceil_mode`, where windows over the right edge count what they cover and padding does not."""
    attributes = {**window.attributes, "pads": window.padding * 2, "ceil_mode": 1, "count_include_pad": 0}
    counts = divisor_override is not None or (count_include_pad and any(window.padding))
    if counts or not _says(g, "AveragePool", attributes):
        return _windowed_average(g, input, window, count_include_pad, divisor_override)
    return g.op("AveragePool", input, **attributes)


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


def _unknown_bounds(g: GraphContext, size: Size, count: int) -> list[tuple[Size, Size]]:
    """The same for a size that is computed."""
    ends = [compute(g, "add", compute(g, "mul", size, i + 1), count - 1) for i in range(count)]
    return [
        (compute(g, "floordiv", compute(g, "mul", size, i), count), compute(g, "floordiv", end, count))
        for i, end in enumerate(ends)
    ]


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
        weights = np.zeros((size, count))
        for column, (start, end) in enumerate(_bounds(size, count)):
            weights[start:end, column] = 1 / (end - start)
        return g.constant(weights, dtype)
    numbers, total = g.call("sym::range", start=0, end=count), g.constant(size)
    starts = g.op("Div", g.op("Mul", numbers, total), g.constant(count))
    ends = g.op("Mul", g.op("Add", numbers, 1), total)
    ends = g.op("Div", g.op("Add", ends, g.constant(compute(g, "sub", count, 1))), g.constant(count))
    places = g.op("Unsqueeze", g.call("sym::range", start=0, end=size), axes=[1])
    inside = g.op("And", g.op("Not", g.op("Less", places, starts)), g.op("Less", places, ends))
    return g.op("Div", g.cast(inside, dtype), g.cast(g.op("Sub", ends, starts), dtype))


def _adaptive_along_axes(
    g: GraphContext,
    input: Value,
    dimensions: int,
    counts: list[Size],
    reduction: str,
    along: Callable[[GraphContext, Value, int, int, Size], Value],
) -> Value:
    """Adaptive pooling of one axis after the other: its windows are products of intervals."""
    rank = dimensions + 2
    shape = g.shape(input)
    for axis, count in enumerate(counts, start=2):
        if not isinstance(count, Value) and count == 1:
            input = g.op(reduction, input, axes=[axis], keepdims=1)
        elif shape is None or not same(dimension(count), shape[axis]):
            input = along(g, input, axis, rank, count)
    return input


def _counts(g: GraphContext, output_size: Sequence[int | Value], dimensions: int) -> list[Size]:
    """The number of windows along each dimension; a lone one is meant for all of them."""
    counts = [known(g, count) for count in output_size]
    return counts * dimensions if len(counts) == 1 else counts


def _register_adaptive_avg_pool(dimensions: int, *names: str) -> None:
    def adaptive_avg_pool(g: GraphContext, self: Value, output_size: list[int | Value]) -> Value:
        counts = _counts(g, output_size, dimensions)
        batched, restored = _batched(g, self, dimensions)
        if set(counts) == {1}:
            return restored(g.op("GlobalAveragePool", batched))
        window = _even_window(spatial_sizes(g, batched, dimensions), counts)
        if window is not None:
            return restored(g.op("AveragePool", batched, **window.attributes))
        return restored(_adaptive_along_axes(g, batched, dimensions, counts, "ReduceMean", _averaged_along))

    for name in names:
        onnx_symbolic(f"aten::{name}")(adaptive_avg_pool)


def _largest_along(g: GraphContext, input: Value, axis: int, rank: int, count: Size) -> Value:
    """Maxima over slices of one axis."""
    size = g.size(input, axis)
    if isinstance(count, Value):
        raise g.refuse("the number of windows of adaptive max pooling must be known")
    bounds = _bounds(size, count) if isinstance(size, int) else _unknown_bounds(g, size, count)
    slices = [g.call("aten::slice", self=input, dim=axis, start=start, end=end) for start, end in bounds]
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
    def adaptive_max_pool(
        g: GraphContext, self: Value, output_size: list[int | Value]
    ) -> tuple[Value, Value | None]:
        counts = _counts(g, output_size, dimensions)
        batched, restored = _batched(g, self, dimensions)
        if set(counts) == {1}:
            values = restored(g.op("GlobalMaxPool", batched))
            if not _is_used(g, 1):
                return values, None
            return values, restored(_position_of_largest(g, batched, dimensions))
        sizes = spatial_sizes(g, batched, dimensions)
        window = _even_window(sizes, counts)
        if window is not None:
            values, indices = _pooled(g, batched, window, indices=_is_used(g, 1))
            return restored(values), None if indices is None else restored(indices)
        values = _adaptive_along_axes(g, batched, dimensions, counts, "ReduceMax", _largest_along)
        if not _is_used(g, 1):
            return restored(values), None
        numbers = [count for count in counts if isinstance(count, int)]
        if sizes is None or len(numbers) < dimensions:
            raise g.refuse("the indices of adaptive pooling need the spatial sizes to be known")
        return restored(values), restored(_positions_of_largest(g, batched, sizes, numbers))

    onnx_symbolic(f"aten::adaptive_max_pool{dimensions}d")(adaptive_max_pool)


for _dimensions in (1, 2, 3):
    _register_max_pools(_dimensions)
    _register_adaptive_max_pool(_dimensions)
_register_avg_pool(2)
_register_avg_pool(3)
_register_adaptive_avg_pool(1, "adaptive_avg_pool1d")
_register_adaptive_avg_pool(2, "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
_register_adaptive_avg_pool(3, "adaptive_avg_pool3d", "_adaptive_avg_pool3d")

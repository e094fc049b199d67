"""Gradients of pooling: the gradient of each output is distributed to the elements of its window."""

import math
from collections.abc import Sequence

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import known_rank, product
from ....compositions.spatial.windows import spatial_sizes
from ..pooling.windows import PoolingWindow
from .axis_products import multiply_along
from .convolution_gradients import transpose_convolution_to


def _sizes(g: GraphContext, value: Value, dimensions: int) -> list[int]:
    sizes = spatial_sizes(g, value, dimensions)
    if sizes is None:
        raise g.refuse("the spatial sizes must be known for the gradient of this pooling")
    return sizes


def _planes(g: GraphContext, value: Value, dimensions: int) -> Value:
    """`[..., spatial...]` as `[planes, 1, spatial...]`."""
    rank = known_rank(g, value)
    return g.op(
        "Reshape", value, g.stack([-1, 1, *(g.size(value, rank - dimensions + i) for i in range(dimensions))])
    )


def _sum_windows(g: GraphContext, planes: Value, weight: Value, like: Value, window: PoolingWindow) -> Value:
    """Sum overlapping windows `[planes, K, places...]` to the shape of the pooling's input."""
    dimensions = len(window.kernel)
    sizes, counts = spatial_sizes(g, like, dimensions), spatial_sizes(g, planes, dimensions)
    if sizes is None or counts is None:
        if window.ceil_mode:
            raise g.refuse("the spatial sizes must be known for the gradient of pooling with ceil_mode")
        rank = known_rank(g, like)
        shaped = g.op(
            "Reshape",
            like,
            g.stack([-1, 1, *(g.size(like, rank - dimensions + i) for i in range(dimensions))]),
        )
        summed = transpose_convolution_to(
            g, planes, weight, shaped, window.stride, window.padding, window.dilation, 1
        )
    else:
        numbers = zip(
            sizes, counts, window.kernel, window.stride, window.padding, window.dilation, strict=True
        )
        overhang = [
            (count - 1) * stride + step * (length - 1) + 1 - pad - size
            for size, count, length, stride, pad, step in numbers
        ]
        # Windows that overhang are cropped as padding, and a gap behind the last one is output padding.
        extra = [max(-more, 0) for more in overhang]
        summed = g.op(
            "ConvTranspose",
            planes,
            weight,
            dilations=window.dilation,
            kernel_shape=window.kernel,
            output_padding=extra if any(extra) else None,
            pads=[*window.padding, *(max(more, 0) for more in overhang)],
            strides=window.stride,
        )
    return g.call("aten::reshape_as", self=summed, other=like)


def _counts(
    g: GraphContext, input: Value, window: PoolingWindow, output_sizes: list[int] | None, padded: bool
) -> np.ndarray:
    """The number of elements of each window, `[places...]`, or one number for all."""
    # Every window then has the same number of elements.
    if not window.ceil_mode and (padded or not any(window.padding)):
        return np.asarray(math.prod(window.kernel))
    g.reserve(*(output_sizes or []))
    counts = np.ones(())
    for size, count, length, stride, pad in zip(
        _sizes(g, input, len(window.kernel)),
        output_sizes or [],
        window.kernel,
        window.stride,
        window.padding,
        strict=True,
    ):
        begins = np.arange(count) * stride - pad
        ends = np.minimum(begins + length, size + pad)
        inside = ends - begins if padded else np.minimum(ends, size) - np.maximum(begins, 0)
        counts = counts[..., None] * inside
    return counts


def _register_average(dimensions: int) -> None:
    @onnx_symbolic(f"aten::avg_pool{dimensions}d_backward")
    def avg_pool_backward(
        g: GraphContext,
        grad_output: Value,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        window = PoolingWindow.of(dimensions, kernel_size, stride, padding, [1], ceil_mode)
        output_sizes = spatial_sizes(g, grad_output, dimensions)
        count = (
            np.asarray(divisor_override)
            if divisor_override is not None
            else _counts(g, self, window, output_sizes, count_include_pad)
        )
        dtype = g.dtype(grad_output) or DataType.FLOAT
        shares = g.op("Div", grad_output, g.constant(count, dtype))
        g.reserve(*window.kernel)
        weight = g.constant(np.ones((1, 1, *window.kernel)), dtype)
        return _sum_windows(g, _planes(g, shares, dimensions), weight, self, window)


def _scatter_gradient(
    g: GraphContext, gradient: Value, indices: Value, like: Value, dimensions: int, unique: bool
) -> Value:
    """Scatter gradients to positions in their planes.

    Args:
        unique: whether no position comes twice.
    """
    rank = known_rank(g, like)
    outer = list(range(rank - dimensions))
    spatial = [g.size(like, rank - dimensions + i) for i in range(dimensions)]
    lead = [g.size(like, axis) for axis in outer]
    zeros = g.call("aten::zeros", size=[*lead, product(g, spatial)], dtype=g.dtype(gradient))
    flat = [g.op("Reshape", value, g.stack([*lead, -1])) for value in (indices, gradient)]
    plane_axis = len(outer)
    if unique:
        scattered = g.op("ScatterElements", zeros, *flat, axis=plane_axis)
    else:
        scattered = g.call("composed::scatter_reduce", zeros, plane_axis, *flat, "add")
    return g.call("aten::reshape_as", self=scattered, other=like)


def _sum_maxima(
    g: GraphContext, gradient: Value, indices: Value, like: Value, window: PoolingWindow
) -> Value:
    """`_scatter_gradient` for opsets without a scatter that sums: compares each element with its maximum."""
    dimensions = len(window.kernel)
    sizes, output_sizes = _sizes(g, like, dimensions), _sizes(g, gradient, dimensions)
    g.reserve(*window.kernel, *output_sizes)
    g.reserve(*window.kernel, *window.kernel)
    flat = np.zeros((1,) * (2 * dimensions), np.int64)
    for i, size in enumerate(sizes):
        begins = np.arange(output_sizes[i]) * window.stride[i] - window.padding[i]
        positions = np.arange(window.kernel[i])[:, None] * window.dilation[i] + begins
        shape = [1] * (2 * dimensions)
        shape[i], shape[dimensions + i] = positions.shape
        # A position outside of the input is that of another element: no window has its maximum there.
        outside = (positions < 0) | (positions >= size)
        positions = np.where(outside, -(math.prod(sizes)), positions)
        flat = flat * size + positions.reshape(shape)
    count = math.prod(window.kernel)
    window_positions = g.constant(flat.reshape(1, count, *output_sizes), DataType.INT64)
    is_maximum = g.op("Equal", _planes(g, indices, dimensions), window_positions)
    selected = g.call("composed::where", condition=is_maximum, self=_planes(g, gradient, dimensions), other=0)
    dtype = g.dtype(gradient) or DataType.FLOAT
    weight = g.constant(np.eye(count).reshape(count, 1, *window.kernel), dtype)
    return _sum_windows(g, selected, weight, like, window)


def _register_maximum(dimensions: int) -> None:
    @onnx_symbolic(f"aten::max_pool{dimensions}d_with_indices_backward")
    def max_pool_backward(
        g: GraphContext,
        grad_output: Value,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: Value,
    ) -> Value:
        window = PoolingWindow.of(dimensions, kernel_size, stride, padding, dilation, ceil_mode)
        numbers = zip(window.kernel, window.stride, window.dilation, strict=True)
        disjoint = all(step * (length - 1) < jump for length, jump, step in numbers)
        sizes_known = all(spatial_sizes(g, value, dimensions) for value in (self, grad_output))
        # Disjoint windows cannot share a maximum, so a plain scatter is enough.
        if disjoint or g.has("ScatterElements", reduction="add") or not sizes_known:
            return _scatter_gradient(g, grad_output, indices, self, dimensions, disjoint)
        return _sum_maxima(g, grad_output, indices, self, window)


def _register_adaptive(dimensions: int) -> None:
    @onnx_symbolic(f"aten::adaptive_max_pool{dimensions}d_backward")
    def adaptive_max_pool_backward(g: GraphContext, grad_output: Value, self: Value, indices: Value) -> Value:
        sizes, output_sizes = (spatial_sizes(g, value, dimensions) for value in (self, grad_output))
        disjoint = sizes is not None and output_sizes is not None
        disjoint = disjoint and all(
            size % count == 0 for size, count in zip(sizes or [], output_sizes or [], strict=True)
        )
        return _scatter_gradient(g, grad_output, indices, self, dimensions, disjoint)

    @onnx_symbolic(f"aten::_adaptive_avg_pool{dimensions}d_backward")
    def adaptive_avg_pool_backward(g: GraphContext, grad_output: Value, self: Value) -> Value:
        """A product with a matrix along each dimension: the shares of each window."""
        rank = known_rank(g, self)
        dtype = g.dtype(grad_output) or DataType.FLOAT
        result = grad_output
        for i, (size, count) in enumerate(
            zip(_sizes(g, self, dimensions), _sizes(g, grad_output, dimensions), strict=True)
        ):
            g.reserve(count, size)
            shares = np.zeros((count, size))
            for output in range(count):
                begin, end = output * size // count, -(-(output + 1) * size // count)
                shares[output, begin:end] = 1.0 / (end - begin)
            result = multiply_along(g, result, rank - dimensions + i, rank, g.constant(shares, dtype))
        return result


for _dimensions in (2, 3):
    _register_average(_dimensions)
    _register_maximum(_dimensions)
    _register_adaptive(_dimensions)

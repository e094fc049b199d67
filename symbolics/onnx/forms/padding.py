"""Convolutions and pooling with a Pad of its own, two dimensions, a smaller kernel, or without a batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from .sizes import all_static, static_shape

_MAXIMUM_BATCH = 8
"""The most images whose weights are repeated."""


def pad_spatial(g: GraphContext, X: Value, pads: list[int], number: float = 0.0) -> Value:
    """Pad the spatial dimensions with a number."""
    half = len(pads) // 2
    constant: dict[str, Any] = {"constant_value": number} if number else {}
    result: Value = g.op("Pad", X, pads=[0, 0, *pads[:half], 0, 0, *pads[half:]], **constant)
    return result


def _register_average_pool(form: str, applies: Callable[[list[int]], bool]) -> None:
    @onnx_symbolic(f"form::AveragePool.{form}")
    def average_pool(
        g: GraphContext,
        X: Value,
        kernel_shape: list[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        pads: list[int] | None = None,
        **attributes: Any,
    ) -> Value:
        """Padding that counts, as zeros in front of the operator."""
        if auto_pad != "NOTSET" or ceil_mode or not count_include_pad or pads is None or not applies(pads):
            raise g.refuse("only padding that is known, and that counts, is written as a Pad")
        result: Value = g.op("AveragePool", pad_spatial(g, X, pads), kernel_shape=kernel_shape, **attributes)
        return result


_register_average_pool("separate_pad", any)
_register_average_pool("uneven_pad", lambda pads: pads[: len(pads) // 2] != pads[len(pads) // 2 :])


@onnx_symbolic("form::MaxPool.separate_pad")
def max_pool(
    g: GraphContext,
    X: Value,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    pads: list[int] | None = None,
    outputs: int = 1,
    **attributes: Any,
) -> Value:
    """Padding that differs between the sides, as the lowest numbers in front of the operator."""
    half = len(pads or ()) // 2
    if auto_pad != "NOTSET" or pads is None or pads[:half] == pads[half:] or ceil_mode or outputs > 1:
        raise g.refuse("only padding that differs between the sides is written as a Pad")
    if g.dtype(X) != DataType.FLOAT:
        raise g.refuse("the elements are not of float")
    lowest = float(np.finfo(np.float32).min)
    result: Value = g.op("MaxPool", pad_spatial(g, X, pads, lowest), kernel_shape=kernel_shape, **attributes)
    return result


@onnx_symbolic("form::Conv.separate_pad")
def convolution(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    auto_pad: str = "NOTSET",
    pads: list[int] | None = None,
    **attributes: Any,
) -> Value:
    """Padding that differs between the sides, as zeros in front of the operator."""
    half = len(pads or ()) // 2
    if auto_pad != "NOTSET" or pads is None or pads[:half] == pads[half:]:
        raise g.refuse("only padding that differs between the sides is written as a Pad")
    result: Value = g.op("Conv", pad_spatial(g, X, pads), W, B, **attributes)
    return result


@onnx_symbolic("form::Conv.same_shape")
def convolution_with_reshape(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    result_shape: list[int] | None = None,
    **attributes: Any,
) -> Value:
    """A convolution and a Reshape to its own shape, which keeps a consumer from fusing the next operator."""
    if result_shape is None or 0 in result_shape:
        raise g.refuse("the sizes must be known")
    return g.op("Reshape", g.op("Conv", X, W, B, **attributes), result_shape)


@onnx_symbolic("form::Conv.trimmed_kernel")
def convolve_within_image(
    g: GraphContext,
    X: Value,
    W: Value,
    B: Value | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    """A convolution of each channel without the rows and columns of the kernel that meet only padding."""
    shape, kernel = g.shape(X), g.constant_value(W)
    image_sizes = [size for size in (shape or ())[2:] if isinstance(size, int)]
    if kernel is None or len(image_sizes) != kernel.ndim - 2 or auto_pad != "NOTSET" or pads is None:
        raise g.refuse("the sizes, the weights or the padding are not known")
    if kernel.shape[1] != 1 or group != kernel.shape[0]:
        raise g.refuse("it is no convolution of each channel")
    rank = kernel.ndim - 2
    trimmed_pads, regions = list(pads), [slice(None), slice(None)]
    for axis in range(rank):
        size, taps = image_sizes[axis], kernel.shape[axis + 2]
        step = dilations[axis] if dilations else 1
        stride = strides[axis] if strides else 1
        before, after = pads[axis], pads[axis + rank]
        last = (size + before + after - step * (taps - 1) - 1) // stride * stride - before
        # A tap that is `step` further reads pixels of an arithmetic sequence from `start` to `last`.
        reads = [
            any(0 <= start < size for start in range(tap * step - before, last + tap * step + 1, stride))
            for tap in range(taps)
        ]
        if not any(reads):
            raise g.refuse("no pixel is read")
        first, end = reads.index(True), taps - reads[::-1].index(True)
        trimmed_pads[axis] -= first * step
        trimmed_pads[axis + rank] -= (taps - end) * step
        regions.append(slice(first, end))
    trimmed = kernel[tuple(regions)]
    if trimmed.shape == kernel.shape or min(trimmed_pads) < 0:
        raise g.refuse("every row and column of the kernel meets the image")
    arguments: dict[str, Any] = {"dilations": dilations, "strides": strides, "group": group}
    arguments |= {"kernel_shape": list(trimmed.shape[2:]), "pads": trimmed_pads}
    result: Value = g.op("Conv", X, g.constant(np.ascontiguousarray(trimmed)), B, **arguments)
    return result


def _register_grouped_batches(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.grouped_batches")
    def convolve_side_by_side(
        g: GraphContext,
        X: Value,
        W: Value,
        B: Value | None = None,
        group: int = 1,
        result_shape: list[int] | None = None,
        **arguments: Any,
    ) -> Value:
        """A few images as channels of one image, of which each group has the same weights."""
        kernel, bias = g.constant_value(W), None if B is None else g.constant_value(B)
        if result_shape is None or kernel is None:
            raise g.refuse("the sizes or the weights are not known")
        batch, channels, *sizes = static_shape(g, X)
        if not 1 < batch <= _MAXIMUM_BATCH or (B is not None and bias is None):
            raise g.refuse(f"the batch is not of 2 to {_MAXIMUM_BATCH} images, or the bias is computed")
        weights = g.constant(np.concatenate([kernel] * batch))
        biases = None if bias is None else g.constant(np.concatenate([bias] * batch))
        image = g.op("Reshape", X, [1, batch * channels, *sizes])
        image = g.op(op_type, image, weights, biases, group=batch * group, **arguments)
        return g.op("Reshape", image, result_shape)


for _op_type in ("Conv", "ConvTranspose"):
    _register_grouped_batches(_op_type)


def _register_channels_of_batches(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.grouped_batches")
    def compute_side_by_side(
        g: GraphContext,
        X: Value | None = None,
        input: Value | None = None,
        scale: Value | None = None,
        B: Value | None = None,
        result_shape: list[int] | None = None,
        **arguments: Any,
    ) -> Value:
        """Images as channels of one image, for operators that compute each channel by itself."""
        data = input if X is None else X
        shape = None if data is None else g.shape(data)
        if data is None or shape is None or result_shape is None or not all_static(shape) or len(shape) < 3:
            raise g.refuse("the sizes are not known")
        batch, channels, *sizes = shape
        if batch < 2 or arguments.get("mode", "CRD") != "CRD":
            raise g.refuse("there is one image, or the blocks are not parts of the channels")
        repeated = []
        for weight in (scale, B):
            array = None if weight is None else g.constant_value(weight)
            if weight is not None and array is None:
                raise g.refuse("the weights are computed")
            repeated += [] if array is None else [g.constant(np.concatenate([array] * batch))]
        # Consumers that have no normalization of sequences take them as images.
        sizes += [1] * (op_type == "InstanceNormalization" and len(sizes) == 1)
        image = g.op("Reshape", data, [1, batch * channels, *sizes])
        return g.op("Reshape", g.op(op_type, image, *repeated, **arguments), result_shape)


for _op_type in (
    "AveragePool", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool",
):  # fmt: skip
    _register_channels_of_batches(_op_type)


@onnx_symbolic("form::LayerNormalization.grouped_batches")
def normalize_side_by_side(
    g: GraphContext, X: Value, Scale: Value, B: Value | None = None, axis: int = -1, **arguments: Any
) -> Value:
    """A batch as the rows of one: the first dimension becomes the second one.

    By Reshapes, because consumers look for the batch behind an Unsqueeze that others are merged with.
    """
    shape = static_shape(g, X)
    if len(shape) < 2 or shape[0] == 1:
        raise g.refuse("there is one batch")
    dim = g.axis(axis, len(shape))
    if dim == 0:
        raise g.refuse("the batch is normalized too")
    rows = g.op("Reshape", X, [1, *shape])
    rows = g.op("LayerNormalization", rows, Scale, B, axis=dim + 1, **arguments)
    result: Value = g.op("Reshape", rows, shape)
    return result


@onnx_symbolic("form::Pad.four_dimensions")
def pad_images(
    g: GraphContext,
    data: Value,
    pads: Value | list[int],
    constant_value: Value | None = None,
    axes: Value | None = None,
    mode: str = "constant",
    result_shape: list[int] | None = None,
) -> Value:
    """Vectors and sequences as images with rows of one pixel."""
    shape, array = g.shape(data), pads if isinstance(pads, list) else g.constant_value(pads)
    if shape is None or result_shape is None or not all_static(shape) or array is None or axes is not None:
        raise g.refuse("the sizes and the padding of all dimensions must be known")
    rank = len(shape)
    if not 1 < rank < 4:
        raise g.refuse("only vectors and sequences become images")
    ends = [int(number) for number in array]
    before, after = ([ends[i], *[0] * (4 - rank), *ends[i + 1 : i + rank]] for i in (0, rank))
    image = g.op("Reshape", data, [*shape[:1], *[1] * (4 - rank), *shape[1:]])
    image = g.op("Pad", image, [*before, *after], constant_value, mode=mode)
    return g.op("Reshape", image, result_shape)


@onnx_symbolic("form::Pad.gather")
def pad_by_positions(
    g: GraphContext,
    data: Value,
    pads: Value | list[int],
    constant_value: Value | None = None,
    axes: Value | None = None,
    mode: str = "constant",
) -> Value:
    """Padding by pixels of the image, which are gathered along each dimension."""
    shape, array = g.shape(data), pads if isinstance(pads, list) else g.constant_value(pads)
    if shape is None or not all_static(shape) or array is None or axes is not None or mode == "constant":
        raise g.refuse("the sizes and the padding of all dimensions must be known, and not of a number")
    ends = [int(number) for number in array]
    for axis, size in enumerate(shape):
        before, after = ends[axis], ends[axis + len(shape)]
        if min(before, after) < 0 or not isinstance(size, int):
            raise g.refuse("a side is cut off")
        if before or after:
            positions = np.pad(np.arange(size), (before, after), mode)  # type: ignore[call-overload]
            data = g.op("Gather", data, positions, axis=axis)
    return data


def _register_two_dimensions(op_type: str) -> None:
    @onnx_symbolic(f"form::{op_type}.two_dimensions")
    def convolve_rows(
        g: GraphContext,
        X: Value,
        W: Value,
        B: Value | None = None,
        auto_pad: str = "NOTSET",
        group: int = 1,
        **arguments: Any,
    ) -> Value:
        """Sequences as images of one row."""
        kernel = g.constant_value(W)
        if g.rank(X) != 3 or auto_pad != "NOTSET" or "output_shape" in arguments:
            raise g.refuse("only a known padding of sequences becomes one of images")
        named: dict[str, Any] = {}
        for name, numbers in arguments.items():
            before = {"pads": [0, numbers[0], 0, numbers[-1]], "output_padding": [0, *numbers]}
            named[name] = before.get(name, [1, *numbers])
        weight = g.op("Unsqueeze", W, axes=[2]) if kernel is None else g.constant(kernel[:, :, None])
        image = g.op(op_type, g.op("Unsqueeze", X, axes=[2]), weight, B, group=group, **named)
        return g.op("Squeeze", image, axes=[2])


for _op_type in ("Conv", "ConvTranspose"):
    _register_two_dimensions(_op_type)


@onnx_symbolic("form::Relu.two_dimensions")
def relu(g: GraphContext, X: Value) -> Value:
    """Sequences as images of one row."""
    if g.rank(X) != 3:
        raise g.refuse("only sequences become images")
    return g.op("Squeeze", g.op("Relu", g.op("Unsqueeze", X, axes=[2])), axes=[2])


@onnx_symbolic("form::Clip.two_dimensions")
def clip(g: GraphContext, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Sequences as images of one row."""
    if g.rank(input) != 3:
        raise g.refuse("only sequences become images")
    return g.op("Squeeze", g.op("Clip", g.op("Unsqueeze", input, axes=[2]), min, max), axes=[2])

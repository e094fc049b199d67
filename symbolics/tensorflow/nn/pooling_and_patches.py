"""Pooling over images and volumes, extraction of patches, and dilation by a filter."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.operator_tables import register_variant
from ...compositions.size_arithmetic import Size, compute, product
from ...compositions.spatial.sliding import Slide, average_windows, gather_windows, largest
from .._common import constant_integers, range_vector
from .convolutions import kernel_sizes
from .layout import IMAGES, DataLayout, constant_pads, pad_images, window_pads


def _slides(
    g: GraphContext,
    images: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> list[Slide]:
    windows = enumerate(zip(kernel, strides, pads, rates, strict=True))
    return [Slide.over(g, g.size(images, 2 + i), *window) for i, window in windows]


def _are_pads_computed(
    g: GraphContext, images: Value, kernel: Sequence[int], steps: Sequence[int], padding: str
) -> bool:
    """Whether the pads depend on sizes that are unknown."""
    return padding == "SAME" and any(
        size > 1 and step > 1 and isinstance(g.size(images, 2 + i), Value)
        for i, (size, step) in enumerate(zip(kernel, steps, strict=True))
    )


def _pad_by_computed_amounts(
    g: GraphContext,
    layout: DataLayout,
    images: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    value: float,
) -> Value | None:
    """The padded images if `auto_pad` cannot stand for their SAME padding; None if no such pads are needed.

    For windows smaller than their stride, `auto_pad` may compute negative pads.
    """
    kernel, steps = layout.spatial(g, ksize, "ksize"), layout.spatial(g, strides, "strides")
    is_small = any(size < step for size, step in zip(kernel, steps, strict=True))
    composed = g.dtype(images) in {DataType.DOUBLE, *dtypes.INTEGERS}
    if not _are_pads_computed(g, images, kernel, steps, padding) or not (is_small or composed):
        return None
    return pad_images(g, images, window_pads(g, layout, images, kernel, steps, padding), value)


def _attributes(
    g: GraphContext,
    layout: DataLayout,
    images: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
) -> dict[str, Any]:
    """The attributes of a pooling operator. If sizes are unknown, SAME with a stride is `auto_pad`."""
    kernel, steps = layout.spatial(g, ksize, "ksize"), layout.spatial(g, strides, "strides")
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": steps}
    if _are_pads_computed(g, images, kernel, steps, padding):
        if any(size < step for size, step in zip(kernel, steps, strict=True)):
            raise g.refuse(
                "the spatial sizes must be known for SAME padding with windows smaller than their stride"
            )
        return {**attributes, "auto_pad": "SAME_UPPER"}
    pads = window_pads(g, layout, images, kernel, steps, padding, explicit_paddings)
    return {**attributes, "pads": constant_pads(pads)}


@onnx_symbolic("tf::MaxPool")
def max_pool(
    g: GraphContext,
    input: Value,
    ksize: Sequence[int] | Value,
    strides: Sequence[int] | Value,
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
) -> Value:
    kernel = constant_integers(g, ksize, "ksize") if isinstance(ksize, Value) else ksize
    steps = constant_integers(g, strides, "strides") if isinstance(strides, Value) else strides
    layout = DataLayout.of(g, data_format)
    images = layout.channels_first(g, input)
    dtype = g.dtype(input) or DataType.FLOAT
    lowest = dtypes.limits(dtype)[0]
    padded_images = _pad_by_computed_amounts(g, layout, images, kernel, steps, padding, lowest)
    if padded_images is not None:
        images, padding = padded_images, "VALID"
    attributes = _attributes(g, layout, images, kernel, steps, padding, explicit_paddings)
    # Runtimes lack most integer kernels of MaxPool, and that of DOUBLE before version 8.
    composed = dtype in dtypes.INTEGERS or (
        dtype == DataType.DOUBLE and not g.has("MaxPool", "storage_order")
    )
    if composed and attributes.get("pads"):
        pads = attributes["pads"]
        pad_pairs = list(zip(pads[: layout.dimensions], pads[layout.dimensions :], strict=True))
        windows = (attributes["kernel_shape"], attributes["strides"], [1] * layout.dimensions, pad_pairs)
        return layout.restore(g, largest(g, images, _slides(g, images, *windows), False)[0])
    return layout.restore(g, g.op("MaxPool", images, **attributes))


register_variant("tf::MaxPoolV2", max_pool, explicit_paddings=())
register_variant("tf::MaxPool3D", max_pool, {"data_format": "NDHWC"}, explicit_paddings=())


def pool_with_positions(g: GraphContext, images: Value, attributes: Mapping[str, Any]) -> tuple[Value, Value]:
    """The maximum of each window, and its first position in the flattened spatial dimensions."""
    values, positions = g.op("MaxPool", images, **attributes, outputs=2)
    plane = product(g, [g.size(images, axis) for axis in range(2, 2 + len(attributes["kernel_shape"]))])
    # ONNX's index also counts the batch and the channels before the plane.
    return values, g.op("Sub", positions, g.op("Mul", g.op("Div", positions, plane), plane))


@onnx_symbolic("tf::MaxPoolWithArgmax")
def max_pool_with_argmax(
    g: GraphContext,
    input: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    Targmax: DataType = DataType.INT64,
    include_batch_in_index: bool = False,
) -> tuple[Value, Value]:
    """TensorFlow's indices count elements of `[height, width, channels]`, ONNX's those of `[N, C, H, W]`."""
    images = IMAGES.channels_first(g, input)
    attributes = _attributes(g, IMAGES, images, ksize, strides, padding)
    values, index_in_plane = pool_with_positions(g, images, attributes)
    batch, channels, height, width = (g.size(images, axis) for axis in range(4))
    plane = compute(g, "mul", height, width)
    numbers_of_channels = g.op("Reshape", range_vector(g, channels), [-1, 1, 1])
    argmax = g.op("Add", g.op("Mul", index_in_plane, channels), numbers_of_channels)
    if include_batch_in_index:
        starts = g.op("Mul", range_vector(g, batch), compute(g, "mul", plane, channels))
        argmax = g.op("Add", argmax, g.op("Reshape", starts, [-1, 1, 1, 1]))
    return IMAGES.restore(g, values), g.cast(IMAGES.restore(g, argmax), Targmax)


def _avg_pool(
    g: GraphContext,
    layout: DataLayout,
    value: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
) -> Value:
    """The average of a window excludes padding. onnxruntime's AveragePool does not support DOUBLE."""
    images = layout.channels_first(g, value)
    padded_images = _pad_by_computed_amounts(g, layout, images, ksize, strides, padding, 0.0)
    if padded_images is not None:
        counts = g.call("aten::ones_like", images)
        padded_counts = _pad_by_computed_amounts(g, layout, counts, ksize, strides, padding, 0.0)
        assert padded_counts is not None
        # Both averages include the padding, so that its share cancels out.
        averages = [
            _average(g, layout, part, ksize, strides, "VALID") for part in (padded_images, padded_counts)
        ]
        return layout.restore(g, g.op("Div", *averages))
    return layout.restore(g, _average(g, layout, images, ksize, strides, padding))


def _average(
    g: GraphContext,
    layout: DataLayout,
    images: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
) -> Value:
    """The average of windows of images with channels at axis 1."""
    attributes = _attributes(g, layout, images, ksize, strides, padding)
    if g.dtype(images) != DataType.DOUBLE:
        result: Value = g.op("AveragePool", images, **attributes)
        return result
    pads, count = attributes["pads"], layout.dimensions
    pad_pairs = list(zip(pads[:count], pads[count:], strict=True))
    slides = _slides(g, images, attributes["kernel_shape"], attributes["strides"], [1] * count, pad_pairs)
    return average_windows(g, images, slides, padded=False)


@onnx_symbolic("tf::AvgPool")
def avg_pool(
    g: GraphContext,
    value: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
) -> Value:
    return _avg_pool(g, DataLayout.of(g, data_format), value, ksize, strides, padding)


@onnx_symbolic("tf::AvgPool3D")
def avg_pool_3d(
    g: GraphContext,
    input: Value,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    data_format: str = "NDHWC",
) -> Value:
    return _avg_pool(g, DataLayout.of(g, data_format), input, ksize, strides, padding)


@onnx_symbolic("tf::Dilation2D")
def dilation2d(
    g: GraphContext, input: Value, filter: Value, strides: Sequence[int], rates: Sequence[int], padding: str
) -> Value:
    """The maximum of the sum of a window and the filter, `[h, w, channels]`; padding never is the maximum."""
    images = IMAGES.channels_first(g, input)
    kernel = kernel_sizes(g, filter, 2)
    steps, dilations = IMAGES.spatial(g, strides, "strides"), IMAGES.spatial(g, rates, "rates")
    extents = [rate * (size - 1) + 1 for rate, size in zip(dilations, kernel, strict=True)]
    pads = window_pads(g, IMAGES, images, extents, steps, padding)
    padded_images = pad_images(g, images, pads, dtypes.limits(g.dtype(input) or DataType.FLOAT)[0])
    slides = _slides(g, padded_images, kernel, steps, dilations, [(0, 0)] * 2)
    windows = gather_windows(g, padded_images, [slide.clip_positions(g) for slide in slides])
    weight = g.op("Unsqueeze", g.op("Transpose", filter, perm=[2, 0, 1]), axes=[1, 2])
    return IMAGES.restore(g, g.op("ReduceMax", g.op("Add", windows, weight), axes=[4, 5], keepdims=0))


def _patches(
    g: GraphContext,
    layout: DataLayout,
    images: Value,
    ksizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> Value:
    """The elements of each window along the channel axis, `[N, counts..., kernel... * C]`."""
    padded_images = layout.channels_first(g, images)
    kernel, steps = layout.spatial(g, ksizes, "ksizes"), layout.spatial(g, strides, "strides")
    dilations = layout.spatial(g, rates, "rates")
    extents = [rate * (size - 1) + 1 for rate, size in zip(dilations, kernel, strict=True)]
    padded_images = pad_images(
        g, padded_images, window_pads(g, layout, padded_images, extents, steps, padding)
    )
    no_pads = [(0, 0)] * layout.dimensions
    slides = _slides(g, padded_images, kernel, steps, dilations, no_pads)
    windows = gather_windows(g, padded_images, [slide.clip_positions(g) for slide in slides])
    count = layout.dimensions
    # From [N, C, counts, kernel] to [N, counts, kernel, C].
    windows = g.op("Transpose", windows, perm=[0, *range(2, 2 + 2 * count), 1])
    depth = compute(g, "mul", g.size(padded_images, 1), math.prod(kernel))
    sizes = [slide.count for slide in slides]
    unknown = [size for size in (g.size(padded_images, 0), *sizes) if isinstance(size, Value)]
    # Reshape infers one size; a batch of -1 keeps the shape free of computed sizes.
    batch: Size = -1 if len(unknown) == 1 and unknown[0] not in sizes else g.size(padded_images, 0)
    return g.op("Reshape", windows, [batch, *sizes, depth])


@onnx_symbolic("tf::ExtractImagePatches")
def extract_image_patches(
    g: GraphContext,
    images: Value,
    ksizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> Value:
    return _patches(g, IMAGES, images, ksizes, strides, rates, padding)


@onnx_symbolic("tf::ExtractVolumePatches")
def extract_volume_patches(
    g: GraphContext, input: Value, ksizes: Sequence[int], strides: Sequence[int], padding: str
) -> Value:
    return _patches(g, DataLayout(3, True), input, ksizes, strides, [1] * 5, padding)

"""Pooling of regions: roi_align, roi_pool, and their position-sensitive forms.

Semantics: torchvision/csrc/ops/cpu/{roi_align,roi_pool,ps_roi_align,ps_roi_pool}_kernel.cpp. Regions are rows
`[image, x1, y1, x2, y2]`. Position-sensitive operators read a channel of its own for each bin: bin `(i, j)`
of the result's channel `c` is pooled from channel `(c * height + i) * width + j`.
"""

import dataclasses

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.outputs import is_used
from ..compositions.size_arithmetic import Size, compute, product, sizes_of
from ..compositions.spatial.bilinear import neighbours_of_regions, sample_pixels
from ..compositions.spatial.region_bins import bin_points, pool_bins


@dataclasses.dataclass(frozen=True)
class _Bins:
    """How regions are divided.

    Attributes:
        height: the number of bins along the height.
        width: the number of bins along the width.
        by_position: whether each bin has channels of its own.
    """

    height: int
    width: int
    by_position: bool = False


def _columns(g: GraphContext, rois: Value, start: int, end: int) -> Value:
    return g.op("Slice", rois, starts=[start], ends=[end], axes=[1])


def _images(g: GraphContext, rois: Value) -> Value:
    """The image of each region, INT64 `[regions]`."""
    return g.cast(g.op("Squeeze", _columns(g, rois, 0, 1), axes=[1]), DataType.INT64)


def _pixels(g: GraphContext, input: Value, bins: _Bins) -> Value:
    """The channels of every pixel as rows; with channels of their own, each bin has its own pixels."""
    n, channels, height, width = sizes_of(g, input)
    if not bins.by_position:
        rows = g.op("Transpose", input, perm=[0, 2, 3, 1])
        return g.op("Reshape", rows, g.stack([-1, channels]))
    channels = compute(g, "floordiv", channels, bins.height * bins.width)
    area = compute(g, "mul", height, width)
    rows = g.op("Reshape", input, g.stack([n, channels, bins.height, bins.width, area]))
    rows = g.op("Transpose", rows, perm=[0, 2, 3, 4, 1])
    return g.op("Reshape", rows, g.stack([-1, channels]))


def _first_pixels(g: GraphContext, input: Value, rois: Value, bins: _Bins) -> Value:
    """The row of each bin's image in `_pixels`, `[regions, height or 1, 1, width or 1, 1]`."""
    first = g.op("Unsqueeze", _images(g, rois), axes=[1, 2, 3, 4])
    if bins.by_position:
        numbers = np.arange(bins.height * bins.width).reshape(1, bins.height, 1, bins.width, 1)
        first = g.op("Add", g.op("Mul", first, numbers.size), g.constant(numbers))
    return g.op("Mul", first, g.constant(product(g, sizes_of(g, input)[2:])))


def _sample_regions(
    g: GraphContext,
    input: Value,
    rois: Value,
    spatial_scale: float,
    bins: _Bins,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """The means of bilinear samples in each bin, `[regions, channels, height, width]`."""
    edges = g.op("Mul", _columns(g, rois, 1, 5), spatial_scale)
    starts, ends = _columns(g, edges, 0, 2), _columns(g, edges, 2, 4)
    lengths = g.op("Sub", ends, starts)
    if aligned:
        starts = g.op("Sub", starts, 0.5)
    else:
        lengths = g.op("Max", lengths, g.constant(1.0, g.dtype(rois)))
    coordinates, most, counts = [], [], []
    for column, number in ((0, bins.width), (1, bins.height)):
        start, length = (_columns(g, value, column, column + 1) for value in (starts, lengths))
        points, longest, bin_counts = bin_points(g, start, length, number, sampling_ratio)
        coordinates.append(points)
        most.append(longest)
        counts.append(bin_counts)
    height, width = sizes_of(g, input)[2:]
    values = sample_pixels(
        g,
        _pixels(g, input, bins),
        _first_pixels(g, input, rois, bins),
        neighbours_of_regions(g, g.op("Unsqueeze", coordinates[1], axes=[3, 4]), height),
        neighbours_of_regions(g, g.op("Unsqueeze", coordinates[0], axes=[1, 2]), width),
        width,
        rank=5,
    )
    pooled = pool_bins(g, values, "avg", counts[1], counts[0], most[1], most[0])
    return g.op("Transpose", pooled, perm=[0, 3, 1, 2])


@onnx_symbolic("torchvision::roi_align")
def roi_align(
    g: GraphContext,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """RoiAlign, where the opset and runtimes have it."""
    if not (g.has("RoiAlign") and g.has_kernel("RoiAlign", input)):
        bins = _Bins(pooled_height, pooled_width)
        return _sample_regions(g, input, rois, spatial_scale, bins, sampling_ratio, aligned)
    return g.op(
        "RoiAlign",
        input,
        _columns(g, rois, 1, 5),
        _images(g, rois),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        mode="avg",
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
    )


@onnx_symbolic("torchvision::ps_roi_align")
def ps_roi_align(
    g: GraphContext,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Value, Value | None]:
    bins = _Bins(pooled_height, pooled_width, by_position=True)
    result = _sample_regions(g, input, rois, spatial_scale, bins, sampling_ratio, aligned=True)
    return result, _channel_mapping(g, input, rois, bins)


def _channel_mapping(g: GraphContext, input: Value, rois: Value, bins: _Bins) -> Value | None:
    """The channel that each element of the result is pooled from, INT32; None if nothing reads it."""
    if not is_used(g, 1):
        return None
    channels = g.size(input, 1)
    out_channels = compute(g, "floordiv", channels, bins.height * bins.width)
    shape = [1, out_channels, bins.height, bins.width]
    numbers = g.cast(g.call("sym::range", start=0, end=channels), DataType.INT32)
    numbers = g.op("Reshape", numbers, g.stack(shape))
    return g.call("aten::expand", self=numbers, size=[g.size(rois, 0), *shape[1:]])


def _round(g: GraphContext, x: Value) -> Value:
    """The nearest integer, halves away from zero as C's `round`, unlike ONNX's Round."""
    magnitude = g.op("Abs", x)
    whole = g.op("Floor", magnitude)
    is_below_half = g.op("Less", g.op("Sub", magnitude, whole), 0.5)
    rounded = g.op("Where", is_below_half, whole, g.op("Add", whole, 1.0))
    return g.op("Where", g.op("Less", x, 0.0), g.op("Neg", rounded), rounded)


def _bin_edges(
    g: GraphContext, start: Value, length: Value, bins: int, size: Size, dtype: DataType
) -> tuple[Value, Value]:
    """The first pixel of each bin and the pixel after its last one, INT64 `[regions, bins]`.

    Args:
        start: the first pixel of each region, `[regions, 1]`.
        length: the length of each region, `[regions, 1]`.
        size: the largest edge.
    """
    step = g.op("Div", length, float(bins))
    last = g.constant(size)
    edges = []
    for first, rounding in ((0, "Floor"), (1, "Ceil")):
        numbers = g.constant(np.arange(first, bins + first).reshape(1, -1), dtype)
        edge = g.op("Add", g.op(rounding, g.op("Mul", numbers, step)), start)
        edge = g.cast(edge, DataType.INT64)
        edge = g.op("Where", g.op("Less", edge, 0), 0, edge)
        edges.append(g.op("Where", g.op("Greater", edge, last), last, edge))
    return edges[0], edges[1]


@dataclasses.dataclass(frozen=True)
class _BinPixels:
    """The pixels of each bin along one axis.

    Attributes:
        positions: INT64 `[regions, bins, most]`.
        inside: whether a position belongs to the bin, `[regions, bins, most]`.
        count: how many do, INT64 `[regions, bins]`.
        most: the largest count, at least 1.
    """

    positions: Value
    inside: Value
    count: Value
    most: Value


def _pixels_of_bins(g: GraphContext, first: Value, end: Value) -> _BinPixels:
    count = g.op("Sub", end, first)
    count = g.op("Where", g.op("Less", count, 0), 0, count)
    # With the additional number, the maximum exists even if there are no regions.
    counts_and_one = g.op("Concat", g.op("Reshape", count, [-1]), g.constant([1]), axis=0)
    most = g.op("ReduceMax", g.cast(counts_and_one, DataType.FLOAT), axes=[0], keepdims=0)
    most = g.cast(most, DataType.INT64)
    numbers = g.call("sym::range", start=0, end=most)
    inside = g.op("Less", numbers, g.op("Unsqueeze", count, axes=[2]))
    # Positions outside of the bin read pixel 0, and their values are not used.
    positions = g.op("Add", g.op("Unsqueeze", first, axes=[2]), numbers)
    return _BinPixels(g.op("Where", inside, positions, 0), inside, count, most)


def _gather_bins(
    g: GraphContext, input: Value, rois: Value, spatial_scale: float, bins: _Bins, added: int, removed: int
) -> tuple[Value, Value, _BinPixels, _BinPixels]:
    """The pixels of every bin.

    Args:
        added: how many pixels a region has more than the difference of its edges.
        removed: how far the largest edge of a bin is from the image's size.

    Returns:
        The pixels, `[regions, height, most, width, most, channels]`; whether each belongs to its bin,
        `[regions, height, most, width, most, 1]`; and the pixels along the height and the width.
    """
    dtype = g.dtype(rois) or DataType.FLOAT
    edges = _round(g, g.op("Mul", _columns(g, rois, 1, 5), spatial_scale))
    starts, ends = _columns(g, edges, 0, 2), _columns(g, edges, 2, 4)
    lengths = g.op("Sub", ends, starts)
    lengths = g.op("Add", lengths, float(added)) if added else lengths
    lengths = g.op("Max", lengths, g.constant(1.0, dtype))
    axes = []
    height, width = sizes_of(g, input)[2:]
    for column, number, size in ((1, bins.height, height), (0, bins.width, width)):
        start, length = (_columns(g, value, column, column + 1) for value in (starts, lengths))
        largest = compute(g, "sub", size, removed)
        axes.append(_pixels_of_bins(g, *_bin_edges(g, start, length, number, largest, dtype)))
    rows, columns = axes
    y = g.op("Unsqueeze", rows.positions, axes=[3, 4])
    x = g.op("Unsqueeze", columns.positions, axes=[1, 2])
    pixel = g.op("Add", _first_pixels(g, input, rois, bins), g.op("Mul", y, g.constant(width)))
    values = g.op("Gather", _pixels(g, input, bins), g.op("Add", pixel, x), axis=0)
    inside = g.op(
        "And",
        g.op("Unsqueeze", rows.inside, axes=[3, 4, 5]),
        g.op("Unsqueeze", columns.inside, axes=[1, 2, 5]),
    )
    return values, inside, rows, columns


def _bin_areas(g: GraphContext, rows: _BinPixels, columns: _BinPixels) -> Value:
    """The number of pixels in each bin, INT64 `[regions, height, width, 1]`."""
    return g.op(
        "Mul", g.op("Unsqueeze", rows.count, axes=[2, 3]), g.op("Unsqueeze", columns.count, axes=[1, 3])
    )


def _max_by_windows(
    g: GraphContext, input: Value, rois: Value, spatial_scale: float, bins: _Bins
) -> tuple[Value, Value | None]:
    """The largest pixel of each bin and its position in the plane; 0 and -1 for an empty bin."""
    values, inside, rows, columns = _gather_bins(g, input, rois, spatial_scale, bins, added=1, removed=0)
    dtype = g.dtype(input) or DataType.FLOAT
    lowest = float(np.finfo(dtype.numpy()).min)
    values = g.op("Where", inside, values, g.constant(lowest, dtype))
    is_empty = g.op("Equal", _bin_areas(g, rows, columns), 0)
    largest = g.op("ReduceMax", values, axes=[2, 4], keepdims=0)
    result = g.op("Where", is_empty, g.constant(0.0, dtype), largest)
    result = g.op("Transpose", result, perm=[0, 3, 1, 2])
    if not is_used(g, 1):
        return result, None
    # [regions, height, width, channels, pixels], so that the first of equal pixels is the first in the plane.
    regions, channels = g.size(rois, 0), g.size(input, 1)
    flat = g.op("Transpose", values, perm=[0, 1, 3, 5, 2, 4])
    pixels = compute(g, "mul", rows.most, columns.most)
    flat = g.op("Reshape", flat, g.stack([regions, bins.height, bins.width, channels, pixels]))
    number = g.op("ArgMax", flat, axis=4, keepdims=0)
    row = g.op("Div", number, columns.most)
    column = g.op("Sub", number, g.op("Mul", row, columns.most))
    first_row = g.op("Slice", rows.positions, starts=[0], ends=[1], axes=[2])
    first_column = g.op("Slice", columns.positions, starts=[0], ends=[1], axes=[2])
    row = g.op("Add", row, g.op("Unsqueeze", first_row, axes=[3]))
    column = g.op("Add", column, g.op("Unsqueeze", first_column, axes=[1]))
    position = g.op("Add", g.op("Mul", row, g.constant(g.size(input, 3))), column)
    position = g.op("Where", is_empty, -1, position)
    position = g.op("Transpose", g.cast(position, DataType.INT32), perm=[0, 3, 1, 2])
    return result, position


@onnx_symbolic("torchvision::roi_pool")
def roi_pool(
    g: GraphContext, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value | None]:
    # MaxRoiPool has no positions.
    if is_used(g, 1) or not g.has_kernel("MaxRoiPool", input):
        return _max_by_windows(g, input, rois, spatial_scale, _Bins(pooled_height, pooled_width))
    shape = [pooled_height, pooled_width]
    return g.op("MaxRoiPool", input, rois, pooled_shape=shape, spatial_scale=spatial_scale), None


@onnx_symbolic("torchvision::ps_roi_pool")
def ps_roi_pool(
    g: GraphContext, input: Value, rois: Value, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Value, Value | None]:
    bins = _Bins(pooled_height, pooled_width, by_position=True)
    values, inside, rows, columns = _gather_bins(g, input, rois, spatial_scale, bins, added=0, removed=1)
    dtype = g.dtype(input) or DataType.FLOAT
    values = g.op("Where", inside, values, g.constant(0.0, dtype))
    total = g.op("ReduceSum", values, axes=[2, 4], keepdims=0)
    area = g.cast(_bin_areas(g, rows, columns), dtype)
    # The sum of an empty bin is 0.
    mean = g.op("Div", total, g.op("Max", area, g.constant(1.0, dtype)))
    return g.op("Transpose", mean, perm=[0, 3, 1, 2]), _channel_mapping(g, input, rois, bins)

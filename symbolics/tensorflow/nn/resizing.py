"""Resizing of images, `[N, height, width, channels]`.

Semantics: tensorflow/core/kernels/image/resize_*_op.cc and image_resizer_state.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size
from ...compositions.spatial.resampling import (
    Method,
    Numbers,
    apply_weights,
    arithmetic,
    clip_negative,
    column,
    number,
    pixels,
    position_blocks,
    resample,
)
from .layout import IMAGES
from .sizes import listed_sizes

_FAR = 1e30
_TABLE = 1024
"""TensorFlow's cubic weights are those of multiples of 1 / 1024."""


def _check(g: GraphContext, align_corners: bool, half_pixel_centers: bool) -> None:
    if align_corners and half_pixel_centers:
        raise g.refuse("half_pixel_centers and align_corners cannot both be true, as in TensorFlow")


def _floats(g: GraphContext, images: Value) -> Value:
    return g.cast(IMAGES.channels_first(g, images), DataType.FLOAT)


def _resize(g: GraphContext, data: Value, sizes: list[Size], **modes: Any) -> Value:
    """Resize by the sizes of all axes, or by factors that are whole.

    onnxruntime moves a Transpose past Resize, and then takes the sizes of some `axes` for those of all.
    """
    if 0 in [g.size(data, axis) for axis in (2, 3)]:
        raise g.refuse("its images have no pixels")
    pairs = [(g.size(data, axis), size) for axis, size in zip((2, 3), sizes, strict=True)]
    factors = [new / old for old, new in pairs if isinstance(old, int) and isinstance(new, int)]
    if len(factors) == 2 and all(factor.is_integer() for factor in factors):
        result: Value = g.op("Resize", data, scales=[1.0, 1.0, *factors], **modes)
        return result
    result = g.op("Resize", data, sizes=[g.size(data, 0), g.size(data, 1), *sizes], **modes)
    return result


def _coordinates(align_corners: bool, half_pixel_centers: bool) -> str:
    return "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"


@onnx_symbolic("tf::ResizeBilinear")
def resize_bilinear(
    g: GraphContext,
    images: Value,
    size: Value,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Value:
    """The result is FLOAT. Without either option, coordinates are scaled from the corner."""
    _check(g, align_corners, half_pixel_centers)
    data, sizes = _floats(g, images), listed_sizes(g, size, 2)
    if g.has("Resize", "coordinate_transformation_mode"):
        coordinates = _coordinates(align_corners, half_pixel_centers)
        result = _resize(g, data, sizes, mode="linear", coordinate_transformation_mode=coordinates)
    else:
        result = _by_places(g, data, sizes, align_corners, half_pixel_centers, Method("linear"))
    return IMAGES.restored(g, result)


@onnx_symbolic("tf::ResizeNearestNeighbor")
def resize_nearest_neighbor(
    g: GraphContext,
    images: Value,
    size: Value,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Value:
    """Resize, if onnxruntime has it for the element type and it takes the same pixels."""
    _check(g, align_corners, half_pixel_centers)
    data, sizes = IMAGES.channels_first(g, images), listed_sizes(g, size, 2)
    rounding = "floor" if not align_corners and not half_pixel_centers else "round_prefer_ceil"
    says = g.has("Resize", "coordinate_transformation_mode") and g.dtype(images) in _RESIZED
    if says and all(
        _agrees(g.size(data, at), count, align_corners, half_pixel_centers)
        for at, count in zip((2, 3), sizes, strict=True)
    ):
        coordinates = _coordinates(align_corners, half_pixel_centers)
        modes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
        return IMAGES.restored(g, _resize(g, data, sizes, mode="nearest", **modes))
    how = Method("nearest", "round_prefer_ceil" if align_corners else "floor")
    return IMAGES.restored(g, _by_places(g, data, sizes, align_corners, half_pixel_centers, how))


def _agrees(size: Size, count: Size, align_corners: bool, half_pixel_centers: bool) -> bool:
    """Whether Resize selects the same pixels as TensorFlow, which multiplies where ONNX divides.

    For unknown sizes they may differ if a coordinate is exactly between two pixels.
    """
    if isinstance(size, Value) or isinstance(count, Value):
        return True
    blocks = position_blocks(count)
    if blocks is None:
        return False
    return all(_agree_at(places, size, count, align_corners, half_pixel_centers) for places in blocks)


def _agree_at(
    places: np.ndarray, size: int, count: int, align_corners: bool, half_pixel_centers: bool
) -> bool:
    single, half = np.float32, np.float32(0.5)
    corners = align_corners and count > 1
    step = single(size - 1) / single(count - 1) if corners else single(size) / single(count)
    if align_corners:
        theirs = np.floor(places * step + half)
        ours = np.floor(places * single(size - 1) / single(max(count - 1, 1)) + half)
    elif half_pixel_centers:
        theirs = np.floor((places + half) * step)
        ours = np.floor((places + half) / (single(count) / single(size)) - half + half)
    else:
        theirs, ours = np.floor(places * step), np.floor(places / (single(count) / single(size)))
    return np.array_equal(np.minimum(theirs, size - 1), np.minimum(ours, size - 1))


_RESIZED = (DataType.FLOAT, DataType.INT32, DataType.INT8, DataType.UINT8)
"""Element types for which onnxruntime has Resize."""


@onnx_symbolic("tf::ResizeBicubic")
def resize_bicubic(
    g: GraphContext,
    images: Value,
    size: Value,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Value:
    """The result is FLOAT. `half_pixel_centers` selects another filter, which leaves out what is outside."""
    _check(g, align_corners, half_pixel_centers)
    data, sizes = _floats(g, images), listed_sizes(g, size, 2)
    if half_pixel_centers:
        how = Method("cubic", cubic=-0.5, exclude_outside=True)
    else:
        how = Method("cubic", cubic=-0.75)
    return IMAGES.restored(g, _by_places(g, data, sizes, align_corners, half_pixel_centers, how))


def _by_places(
    g: GraphContext,
    data: Value,
    sizes: list[Size],
    align_corners: bool,
    half_pixel_centers: bool,
    how: Method,
) -> Value:
    """Resample each axis at the coordinates that TensorFlow computes in single precision."""
    for at, count in zip((2, 3), sizes, strict=True):
        size = g.size(data, at)
        step = _step(g, size, count, align_corners)
        places = pixels(g, count, DataType.FLOAT)
        if half_pixel_centers and how.mode == "nearest":
            places = arithmetic(g, "Mul", arithmetic(g, "Add", places, np.float32(0.5)), step)
        elif half_pixel_centers:
            half = np.float32(0.5)
            places = arithmetic(g, "Mul", arithmetic(g, "Add", places, half), step)
            places = arithmetic(g, "Sub", places, half)
        else:
            places = arithmetic(g, "Mul", places, step)
        if how.mode == "cubic":
            places = _tabulated(g, places)
        data = resample(g, data, at, size, places, step, how)
    return data


def _tabulated(g: GraphContext, places: Numbers) -> Numbers:
    """Round coordinates to those in the table of weights."""
    first = arithmetic(g, "Floor", places)
    steps = arithmetic(g, "Mul", arithmetic(g, "Sub", places, first), np.float32(_TABLE))
    steps = g.op("Round", steps) if isinstance(steps, Value) else np.round(steps)
    return arithmetic(g, "Add", first, arithmetic(g, "Mul", steps, np.float32(1 / _TABLE)))


def _step(g: GraphContext, size: Size, count: Size, align_corners: bool) -> Numbers:
    """Input pixels per output pixel; `align_corners` does not apply to a single output pixel."""
    whole = number(g, size, DataType.FLOAT), number(g, count, DataType.FLOAT)
    plain = arithmetic(g, "Div", *whole)
    if not align_corners:
        return plain
    one = np.float32(1)
    gaps = arithmetic(g, "Sub", whole[1], one)
    single = arithmetic(g, "Less", gaps, one)
    gaps = arithmetic(g, "Where", single, one, gaps)
    corners = arithmetic(g, "Div", arithmetic(g, "Sub", whole[0], one), gaps)
    return arithmetic(g, "Where", single, plain, corners)


@onnx_symbolic("tf::ResizeArea")
def resize_area(g: GraphContext, images: Value, size: Value, align_corners: bool = False) -> Value:
    """The mean of the area of each pixel; beyond the image, the last pixel is repeated."""
    data, sizes = _floats(g, images), listed_sizes(g, size, 2)
    for at, count in zip((2, 3), sizes, strict=True):
        own = g.size(data, at)
        step = _step(g, own, count, align_corners)
        starts = arithmetic(g, "Mul", pixels(g, count, DataType.FLOAT), step)
        starts = column(g, starts)
        left = pixels(g, own, DataType.FLOAT)
        right = arithmetic(g, "Add", left, np.float32(1))
        is_last = arithmetic(g, "Equal", right, number(g, own, DataType.FLOAT))
        right = arithmetic(g, "Where", is_last, np.float32(_FAR), right)
        ends = arithmetic(g, "Add", starts, step)
        begins = arithmetic(g, "Where", arithmetic(g, "Less", left, starts), starts, left)
        ends = arithmetic(g, "Where", arithmetic(g, "Less", ends, right), ends, right)
        covered = clip_negative(g, arithmetic(g, "Sub", ends, begins))
        data = apply_weights(g, data, arithmetic(g, "Div", covered, step), at)
    return IMAGES.restored(g, data)

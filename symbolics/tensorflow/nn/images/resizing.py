"""Resizing of images, `[N, height, width, channels]`.

Semantics: tensorflow/core/kernels/image/resize_*_op.cc and image_resizer_state.h.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.matrices import identity
from ....compositions.moments import cast_like
from ....compositions.operator_tables import register_variant
from ....compositions.size_arithmetic import Size
from ....compositions.spatial.resampling import (
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
from ..layout import IMAGES, set_rank
from ..size_operands import list_sizes

_FAR = 1e30
_TABLE = 1024
"""TensorFlow rounds the coordinates of cubic weights to multiples of 1 / 1024."""


def _resize(g: GraphContext, data: Value, sizes: list[Size], **modes: Any) -> Value:
    """Resize by the sizes of all axes, or by integer factors.

    Sizes of some `axes` only are avoided: onnxruntime moves a Transpose past Resize, and then mistakes them
    for the sizes of all axes.
    """
    if 0 in [g.size(data, axis) for axis in (2, 3)]:
        raise g.refuse("its images have no pixels")
    pairs = [(g.size(data, axis), size) for axis, size in zip((2, 3), sizes, strict=True)]
    factors = [new / old for old, new in pairs if isinstance(old, int) and isinstance(new, int)]
    # Integer factors are exact as FLOAT scales, and need no sizes at run time.
    if len(factors) == 2 and all(factor.is_integer() for factor in factors):
        return g.op("Resize", data, scales=[1.0, 1.0, *factors], outputs=1, **modes)
    return g.op("Resize", data, sizes=[g.size(data, 0), g.size(data, 1), *sizes], outputs=1, **modes)


def _coordinates(align_corners: bool, half_pixel_centers: bool) -> str:
    return "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"


def _register(name: str, resize: Callable[[GraphContext, Value, list[Size], bool, bool], Value]) -> None:
    """Register a function that resizes [N, channels, height, width]."""

    @onnx_symbolic(f"tf::{name}")
    def resize_images(
        g: GraphContext,
        images: Value,
        size: Value,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
    ) -> Value:
        if align_corners and half_pixel_centers:
            raise g.refuse("half_pixel_centers and align_corners cannot both be true, as in TensorFlow")
        data = IMAGES.channels_first(g, images)
        # TensorFlow interpolates in FLOAT; nearest pixels keep their type.
        data = data if name == "ResizeNearestNeighbor" else g.cast(data, DataType.FLOAT)
        return IMAGES.restore(g, resize(g, data, list_sizes(g, size, 2), align_corners, half_pixel_centers))


def _bilinear(
    g: GraphContext, data: Value, sizes: list[Size], align_corners: bool, half_pixel_centers: bool
) -> Value:
    """Without either option, coordinates are scaled from the corner."""
    if g.has("Resize", "coordinate_transformation_mode"):
        coordinates = _coordinates(align_corners, half_pixel_centers)
        return _resize(g, data, sizes, mode="linear", coordinate_transformation_mode=coordinates)
    return _resample_axes(g, data, sizes, align_corners, half_pixel_centers, Method("linear"))


def _nearest(
    g: GraphContext, data: Value, sizes: list[Size], align_corners: bool, half_pixel_centers: bool
) -> Value:
    """Use Resize if onnxruntime has it for the element type, and if it selects the same pixels."""
    rounding = "floor" if not align_corners and not half_pixel_centers else "round_prefer_ceil"
    can_resize = g.has("Resize", "coordinate_transformation_mode") and g.dtype(data) in _RESIZE_TYPES
    if can_resize and all(
        _selects_same_pixels(g.size(data, axis), count, align_corners, half_pixel_centers)
        for axis, count in zip((2, 3), sizes, strict=True)
    ):
        coordinates = _coordinates(align_corners, half_pixel_centers)
        modes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
        return _resize(g, data, sizes, mode="nearest", **modes)
    method = _method("nearest", align_corners, half_pixel_centers)
    return _resample_axes(g, data, sizes, align_corners, half_pixel_centers, method)


def _method(mode: str, align_corners: bool, half_pixel_centers: bool) -> Method:
    """The interpolation; `half_pixel_centers` selects another cubic filter, which excludes pixels outside."""
    if mode == "cubic":
        cubic = -0.5 if half_pixel_centers else -0.75
        return Method("cubic", cubic=cubic, exclude_outside=half_pixel_centers)
    return Method(mode, "round_prefer_ceil" if align_corners else "floor")


def _selects_same_pixels(size: Size, count: Size, align_corners: bool, half_pixel_centers: bool) -> bool:
    """Whether Resize selects the same pixels as TensorFlow, which multiplies where ONNX divides.

    If sizes are unknown, the pixels may differ where a coordinate is exactly between two pixels.
    """
    if isinstance(size, Value) or isinstance(count, Value):
        return True
    blocks = position_blocks(count)
    if blocks is None:
        return False
    return all(
        _selects_same_pixels_at(positions, size, count, align_corners, half_pixel_centers)
        for positions in blocks
    )


def _selects_same_pixels_at(
    positions: np.ndarray, size: int, count: int, align_corners: bool, half_pixel_centers: bool
) -> bool:
    # Both sides compute in single precision, whose rounding decides between two pixels.
    single, half = np.float32, np.float32(0.5)
    corners = align_corners and count > 1
    step = single(size - 1) / single(count - 1) if corners else single(size) / single(count)
    if align_corners:
        tensorflow_pixels = np.floor(positions * step + half)
        onnx_pixels = np.floor(positions * single(size - 1) / single(max(count - 1, 1)) + half)
    elif half_pixel_centers:
        tensorflow_pixels = np.floor((positions + half) * step)
        onnx_pixels = np.floor((positions + half) / (single(count) / single(size)) - half + half)
    else:
        tensorflow_pixels = np.floor(positions * step)
        onnx_pixels = np.floor(positions / (single(count) / single(size)))
    return np.array_equal(np.minimum(tensorflow_pixels, size - 1), np.minimum(onnx_pixels, size - 1))


_RESIZE_TYPES = (DataType.FLOAT, DataType.INT32, DataType.INT8, DataType.UINT8)
"""Element types for which onnxruntime has Resize."""


def _bicubic(
    g: GraphContext, data: Value, sizes: list[Size], align_corners: bool, half_pixel_centers: bool
) -> Value:
    method = _method("cubic", align_corners, half_pixel_centers)
    return _resample_axes(g, data, sizes, align_corners, half_pixel_centers, method)


_register("ResizeBilinear", _bilinear)
_register("ResizeNearestNeighbor", _nearest)
_register("ResizeBicubic", _bicubic)


def _resample_axes(
    g: GraphContext,
    data: Value,
    sizes: list[Size],
    align_corners: bool,
    half_pixel_centers: bool,
    method: Method,
) -> Value:
    for axis, count in zip((2, 3), sizes, strict=True):
        data = _resample_axis(g, data, axis, count, align_corners, half_pixel_centers, method)
    return data


def _resample_axis(
    g: GraphContext,
    data: Value,
    axis: int,
    count: Size,
    align_corners: bool,
    half_pixel_centers: bool,
    method: Method,
) -> Value:
    """Resample an axis at the coordinates that TensorFlow computes in single precision."""
    half, size = np.float32(0.5), g.size(data, axis)
    step = _step(g, size, count, align_corners)
    coordinates = pixels(g, count, DataType.FLOAT)
    if half_pixel_centers and method.mode == "nearest":
        coordinates = arithmetic(g, "Mul", arithmetic(g, "Add", coordinates, half), step)
    elif half_pixel_centers:
        coordinates = arithmetic(g, "Mul", arithmetic(g, "Add", coordinates, half), step)
        coordinates = arithmetic(g, "Sub", coordinates, half)
    else:
        coordinates = arithmetic(g, "Mul", coordinates, step)
    if method.mode == "cubic":
        coordinates = _round_to_table(g, coordinates)
    return resample(g, data, axis, size, coordinates, step, method)


def _resize_gradient(
    g: GraphContext, gradients: Value, sizes: Sequence[Size], mode: str, align_corners: bool, centers: bool
) -> Value:
    """The gradient of images of these sizes: products with the transposed weights of each axis."""
    data = g.cast(IMAGES.channels_first(g, gradients), DataType.FLOAT)
    method = _method(mode, align_corners, centers)
    for axis, size in zip((2, 3), sizes, strict=True):
        pixel_matrix = identity(g, size, size, DataType.FLOAT)
        # The resampled identity matrix holds the weights of the pixels.
        weights = _resample_axis(g, pixel_matrix, 0, g.size(data, axis), align_corners, centers, method)
        data = apply_weights(g, data, g.op("Transpose", weights, perm=[1, 0]), axis)
    return IMAGES.restore(g, data)


def _resize_gradient_like(
    g: GraphContext,
    grads: Value,
    original_image: Value,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    mode: str = "linear",
) -> Value:
    sizes = [g.size(set_rank(g, original_image, 4), axis) for axis in (1, 2)]
    result = _resize_gradient(g, grads, sizes, mode, align_corners, half_pixel_centers)
    return cast_like(g, result, original_image)


register_variant("tf::ResizeBilinearGrad", _resize_gradient_like, mode="linear")
register_variant("tf::ResizeBicubicGrad", _resize_gradient_like, mode="cubic")


@onnx_symbolic("tf::ResizeNearestNeighborGrad")
def resize_nearest_neighbor_grad(
    g: GraphContext, grads: Value, size: Value, align_corners: bool = False, half_pixel_centers: bool = False
) -> Value:
    sizes = list_sizes(g, size, 2)
    return cast_like(
        g, _resize_gradient(g, grads, sizes, "nearest", align_corners, half_pixel_centers), grads
    )


def _round_to_table(g: GraphContext, coordinates: Numbers) -> Numbers:
    """Round coordinates to those in TensorFlow's table of cubic weights."""
    first = arithmetic(g, "Floor", coordinates)
    steps = arithmetic(g, "Mul", arithmetic(g, "Sub", coordinates, first), np.float32(_TABLE))
    steps = g.op("Round", steps) if isinstance(steps, Value) else np.round(steps)
    return arithmetic(g, "Add", first, arithmetic(g, "Mul", steps, np.float32(1 / _TABLE)))


def _step(g: GraphContext, size: Size, count: Size, align_corners: bool) -> Numbers:
    """Input pixels per output pixel; `align_corners` does not apply to a single output pixel."""
    float_sizes = number(g, size, DataType.FLOAT), number(g, count, DataType.FLOAT)
    scale = arithmetic(g, "Div", *float_sizes)
    if not align_corners:
        return scale
    unit = np.float32(1)
    gaps = arithmetic(g, "Sub", float_sizes[1], unit)
    single = arithmetic(g, "Less", gaps, unit)
    gaps = arithmetic(g, "Where", single, unit, gaps)
    corners = arithmetic(g, "Div", arithmetic(g, "Sub", float_sizes[0], unit), gaps)
    return arithmetic(g, "Where", single, scale, corners)


@onnx_symbolic("tf::ResizeArea")
def resize_area(g: GraphContext, images: Value, size: Value, align_corners: bool = False) -> Value:
    """The mean over the area of each result pixel; the last pixel extends beyond the image."""
    data = g.cast(IMAGES.channels_first(g, images), DataType.FLOAT)
    sizes = list_sizes(g, size, 2)
    for axis, count in zip((2, 3), sizes, strict=True):
        input_size = g.size(data, axis)
        step = _step(g, input_size, count, align_corners)
        starts = arithmetic(g, "Mul", pixels(g, count, DataType.FLOAT), step)
        starts = column(g, starts)
        pixel_starts = pixels(g, input_size, DataType.FLOAT)
        pixel_ends = arithmetic(g, "Add", pixel_starts, np.float32(1))
        is_last = arithmetic(g, "Equal", pixel_ends, number(g, input_size, DataType.FLOAT))
        # The last pixel extends beyond the image.
        pixel_ends = arithmetic(g, "Where", is_last, np.float32(_FAR), pixel_ends)
        ends = arithmetic(g, "Add", starts, step)
        begins = arithmetic(g, "Where", arithmetic(g, "Less", pixel_starts, starts), starts, pixel_starts)
        ends = arithmetic(g, "Where", arithmetic(g, "Less", ends, pixel_ends), ends, pixel_ends)
        covered = clip_negative(g, arithmetic(g, "Sub", ends, begins))
        data = apply_weights(g, data, arithmetic(g, "Div", covered, step), axis)
    return IMAGES.restore(g, data)

"""Interpolation to a size or by a factor: nearest, linear, cubic, with and without antialiasing.

Emitted as Resize where the opset has its mode of coordinates, and composed below. Resize of ONNX files is in
`symbolics/onnx/images/resize.py`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.size_arithmetic import Size, compute
from ....compositions.spatial.resampling import (
    Method,
    Numbers,
    arithmetic,
    clip_negative,
    number,
    pixels,
    position_blocks,
    resample,
)

_ANY_SIZE = 1 << 16
"""If the size is unknown, results up to this size are compared."""


@dataclasses.dataclass(frozen=True)
class InterpolationAxis:
    """One spatial axis of an interpolation.

    Attributes:
        size: the size of the input, an int if it is known.
        count: the size of the output, None if only `scale` is given.
        scale: the factor that the user gave; ATen then computes coordinates from it and not from the sizes.
        multiples: multiples of the size at which ATen computes them from the sizes nevertheless.
    """

    size: int | None
    count: Size | None
    scale: float | None
    multiples: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether the coordinates depend on the factor alone, for every size."""
        if self.scale is None or self.scale.is_integer():
            return True
        whole_scale = math.floor(self.scale)
        return whole_scale not in self.multiples or self.scale - whole_scale >= 0.5

    def by_sizes(self) -> "InterpolationAxis":
        """This axis without a factor, if ATen ignores it."""
        # ATen copies or repeats pixels at these multiples, whatever the factor is.
        if self.size and self.output is not None and self.output in [n * self.size for n in self.multiples]:
            return dataclasses.replace(self, count=self.output, scale=None)
        return self

    @property
    def output(self) -> int | None:
        """The output's size if known: ATen's `floor(size * scale)` in double precision."""
        if self.count is None and self.size is not None and self.scale is not None:
            return int(self.size * self.scale)
        return self.count if isinstance(self.count, int) else None

    @property
    def is_known(self) -> bool:
        """Whether both sizes are known."""
        return self.size is not None and self.output is not None

    @property
    def float_scale(self) -> float | None:
        """The FLOAT factor from which ONNX computes the same output size, or None."""
        if (self.scale is None or self.count is not None) and not self.is_known:
            return None
        exact = self.scale if self.scale is not None else self.output / self.size  # type: ignore[operator]
        scale = np.float32(exact)
        if float(scale) < exact:  # NumPy would round the other side to FLOAT.
            scale = np.nextafter(scale, np.float32(math.inf), dtype=np.float32)
        if self.size is not None and self.output is not None:
            # onnxruntime multiplies in FLOAT, the shape inference of ONNX in DOUBLE.
            output_sizes = {int(np.float32(self.size) * scale), int(self.size * float(scale))}
            return float(scale) if output_sizes == {self.output} else None
        return float(scale)

    def agrees(self, exact: bool) -> bool:
        """Whether Resize takes the same nearest pixels as ATen, which multiplies where ONNX divides."""
        scale = self.float_scale
        if not self.is_known and scale is None:
            return True
        divisor = np.float32(scale if scale is not None else self.output / self.size)  # type: ignore[operator]
        if self.scale is not None:
            step = np.float32(1.0 / self.scale)
        else:
            step = np.float32(self.size) / np.float32(self.output)
        half = np.float32(0.5 if exact else 0)
        last = math.inf if self.size is None else self.size - 1
        # Compares every output pixel: rounding differs only at a few of them.
        blocks = position_blocks(_ANY_SIZE if self.output is None else self.output)
        return blocks is not None and all(
            np.array_equal(
                np.clip(np.floor((numbers + half) / divisor - half + half), 0, last),
                np.minimum(np.floor((numbers + half) * step), last),
            )
            for numbers in blocks
        )


def _axes(
    g: GraphContext,
    input: Value,
    dimensions: int,
    sizes: list[int | Value] | None,
    scales: Sequence[Number | None] | None,
    mode: str,
    antialias: bool,
) -> list[InterpolationAxis]:
    """The spatial axes of an interpolation to given sizes, by given factors, or both.

    If a size stays, linear interpolation and antialiasing copy. Nearest pixels of images are copied too, and
    repeated if the size doubles (ATen's `compute_source_index_and_lambda` and `nearest_idx`).
    """
    multiples: tuple[int, ...] = (1,) if mode == "linear" or antialias else ()
    # ATen repeats pixels of images that double, without computing coordinates.
    if mode == "nearest" and dimensions == 2:
        multiples = (1, 2)
    shape = g.shape(input)
    spatial_sizes = (None,) * dimensions if shape is None else shape[2:]
    return [
        InterpolationAxis(
            size if isinstance(size, int) else None,
            None if sizes is None else sizes[i],
            None if scales is None or scales[i] is None else float(scales[i]),  # type: ignore[arg-type]
            multiples,
        ).by_sizes()
        for i, size in enumerate(spatial_sizes)
    ]


def _step(
    g: GraphContext, axis: InterpolationAxis, size: Size, count: Size, corners: bool, dtype: DataType
) -> Numbers:
    """Input pixels per output pixel (ATen's `area_pixel_compute_scale`)."""
    if corners:
        gaps = compute(g, "sub", count, 1)
        step = number(g, compute(g, "sub", size, 1), dtype)
        step = arithmetic(g, "Div", step, number(g, compute(g, "max", gaps, 1), dtype))
        return arithmetic(g, "Where", arithmetic(g, "Greater", gaps, 0), step, 0.0)
    if axis.scale is None:
        return arithmetic(g, "Div", number(g, size, dtype), number(g, count, dtype))
    step = dtype.numpy().type(1.0 / axis.scale)
    for multiple in () if axis.is_known else axis.multiples:
        is_multiple = arithmetic(g, "Equal", count, compute(g, "mul", size, multiple))
        step = arithmetic(g, "Where", is_multiple, 1.0 / multiple, g.constant(step, dtype))
    return step


def _compose(
    g: GraphContext, input: Value, spatial: list[InterpolationAxis], mode: str, corners: bool, antialias: bool
) -> Value:
    """ATen's own coordinates, one axis after the other."""
    is_nearest, dtype = mode.startswith("nearest"), DataType.FLOAT
    cubic = -0.5 if antialias else -0.75  # The first as in Pillow.
    method = Method("nearest" if is_nearest else mode, "floor", cubic, antialias, antialias)
    for dim, axis in enumerate(spatial, start=2):
        if not is_nearest and (g.dtype(input) == DataType.DOUBLE or (antialias and axis.is_known)):
            dtype = DataType.DOUBLE
        size, count = g.size(input, dim), axis.count if axis.output is None else axis.output
        if count is None and axis.scale is None:
            raise g.refuse("neither sizes nor scale factors are given")
        if count is None:
            count = g.call("sym::trunc", a=g.call("sym::mul", a=size, b=axis.scale))
        step = _step(g, axis, size, count, corners, dtype)
        coordinates = pixels(g, count, dtype)
        if mode == "nearest" or (corners and not antialias):
            coordinates = arithmetic(g, "Mul", coordinates, step)
        else:
            coordinates = arithmetic(g, "Mul", arithmetic(g, "Add", coordinates, 0.5), step)
            coordinates = coordinates if is_nearest else arithmetic(g, "Sub", coordinates, 0.5)
        if mode == "linear" and not antialias:
            computed = isinstance(coordinates, Value) or isinstance(size, Value)
            coordinates = clip_negative(g, coordinates) if computed else np.clip(coordinates, 0, size - 1)
        input = resample(g, input, dim, size, coordinates, step, method)
    return input


def _interpolate(
    g: GraphContext,
    input: Value,
    dimensions: int,
    mode: str,
    sizes: list[int | Value] | None,
    scales: Sequence[Number | None] | None,
    align_corners: bool = False,
    antialias: bool = False,
) -> Value:
    """Interpolation with ATen's coordinates: Resize if it reads the same pixels, else a composition."""
    spatial = _axes(g, input, dimensions, sizes, scales, mode, antialias)
    is_nearest, exact = mode.startswith("nearest"), mode == "nearest_exact"
    factors = [axis.float_scale for axis in spatial]
    by_factors = all(factor is not None for factor in factors)
    by_sizes = sizes is not None and all(axis.scale is None for axis in spatial)
    by_operator = (by_factors or by_sizes) and all(axis.is_settled for axis in spatial)
    by_operator = by_operator and g.has_kernel("Resize", input)
    if is_nearest:
        by_operator = by_operator and all(axis.agrees(exact) for axis in spatial)
    if antialias:
        sizes_known = all(axis.is_known for axis in spatial)
        by_operator = by_operator and not sizes_known and not align_corners and g.has("Resize", "antialias")
    if by_operator and is_nearest and set(factors) == {1.0}:
        return input
    repeats = is_nearest and by_factors and all(factor.is_integer() for factor in factors if factor)
    if not by_operator or not (repeats or g.has("Resize", "coordinate_transformation_mode")):
        # Resize below 11 does not have ATen's coordinates. What the version ladder composes in its place also
        # covers ONNX's rule for results of one pixel, and gives larger graphs than ATen's coordinates.
        return _compose(g, input, spatial, mode, align_corners, antialias)
    modes: dict[str, Any] = {
        "mode": "nearest" if is_nearest else mode,
        "coordinate_transformation_mode": "half_pixel",
        "antialias": 1 if antialias else None,
        "exclude_outside": 1 if antialias else None,
    }
    if is_nearest:
        modes["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    if mode == "cubic":
        modes["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if align_corners:
        modes["coordinate_transformation_mode"] = "align_corners"
    elif mode == "nearest":
        modes["coordinate_transformation_mode"] = "asymmetric"
    # Factors keep the output size dynamic where the input's is.
    if by_factors:
        result: Value = g.op("Resize", input, scales=[1.0, 1.0, *factors], **modes)
        return result
    # Not of some `axes`: onnxruntime moves a Transpose past Resize, and takes `sizes` for those of all axes.
    result = g.op("Resize", input, sizes=[g.size(input, 0), g.size(input, 1), *(sizes or [])], **modes)
    return result


_SCALES = (("scales",), ("scales_h", "scales_w"), ("scales_d", "scales_h", "scales_w"))
"""The names of the arguments that give a factor for each dimension, of images of 1, 2 and 3 dimensions."""


def _register(name: str, dimensions: int, mode: str, antialias: bool = False) -> None:
    """Register the overloads with a size and with factors; `align_corners` is an option of some modes."""

    @onnx_symbolic(f"aten::{name}")
    def to_size(g: GraphContext, self: Value, output_size: list[int | Value], **options: Any) -> Value:
        factors = [options.pop(scale, None) for scale in _SCALES[dimensions - 1]]
        return _interpolate(g, self, dimensions, mode, output_size, factors, antialias=antialias, **options)

    @onnx_symbolic(f"aten::{name}.vec")
    def by_factors(
        g: GraphContext,
        input: Value,
        output_size: list[int | Value] | None,
        scale_factors: list[Number] | None,
        **options: Any,
    ) -> Value:
        return _interpolate(
            g, input, dimensions, mode, output_size, scale_factors, antialias=antialias, **options
        )


for _dimensions in (1, 2, 3):
    _register(f"upsample_nearest{_dimensions}d", _dimensions, "nearest")
    _register(f"_upsample_nearest_exact{_dimensions}d", _dimensions, "nearest_exact")
_register("upsample_linear1d", 1, "linear")
_register("upsample_bilinear2d", 2, "linear")
_register("upsample_trilinear3d", 3, "linear")
_register("upsample_bicubic2d", 2, "cubic")
_register("_upsample_bilinear2d_aa", 2, "linear", antialias=True)
_register("_upsample_bicubic2d_aa", 2, "cubic", antialias=True)

"""Interpolation to a size or by a factor: nearest, linear, cubic, with and without antialiasing."""

from collections.abc import Callable

from .....registration import GraphContext, Number, Value, onnx_symbolic
from ....compositions.computed_resampling import by_computation
from ....compositions.resampling import axes, by_constants


@onnx_symbolic("composed::enlarge")
def enlarge(g: GraphContext, input: Value, factors: list[int]) -> Value:
    """Each pixel repeated along each spatial axis."""
    return g.op("Upsample", input, mode="nearest", scales=[1.0, 1.0, *map(float, factors)])


@onnx_symbolic("composed::resample")
def resample(
    g: GraphContext,
    input: Value,
    dimensions: int,
    mode: str,
    sizes: list[int | Value] | None,
    scales: list[Number | None] | None,
    align_corners: bool = False,
    antialias: bool = False,
) -> Value:
    """Interpolation with ATen's coordinates.

    Before Resize has them (11) by indices and weights, but for nearest neighbours at whole factors.
    """
    spatial = axes(g, input, dimensions, sizes, scales, mode, antialias)
    factors = [axis.factor for axis in spatial]
    if mode.startswith("nearest") and all(factor is not None for factor in factors):
        return input if set(factors) == {1} else g.call("composed::enlarge", input, factors)
    result = by_constants(g, input, spatial, mode, align_corners, antialias)
    return by_computation(g, input, spatial, mode, align_corners, antialias) if result is None else result


def _nearest_to_size(dimensions: int, mode: str) -> Callable[..., Value]:
    def to_length(
        g: GraphContext, self: Value, output_size: list[int | Value], scales: float | None = None
    ) -> Value:
        return g.call("composed::resample", self, 1, mode, output_size, [scales])

    def to_area(
        g: GraphContext,
        self: Value,
        output_size: list[int | Value],
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        return g.call("composed::resample", self, 2, mode, output_size, [scales_h, scales_w])

    def to_volume(
        g: GraphContext,
        self: Value,
        output_size: list[int | Value],
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        return g.call("composed::resample", self, 3, mode, output_size, [scales_d, scales_h, scales_w])

    return (to_length, to_area, to_volume)[dimensions - 1]


def _register_nearest(name: str, dimensions: int, mode: str) -> None:
    def by_factors(
        g: GraphContext,
        input: Value,
        output_size: list[int | Value] | None,
        scale_factors: list[Number] | None,
    ) -> Value:
        return g.call("composed::resample", input, dimensions, mode, output_size, scale_factors)

    onnx_symbolic(f"aten::{name}")(_nearest_to_size(dimensions, mode))
    onnx_symbolic(f"aten::{name}.vec")(by_factors)


def _smooth_to_size(dimensions: int, mode: str, antialias: bool) -> Callable[..., Value]:
    def to_length(
        g: GraphContext,
        self: Value,
        output_size: list[int | Value],
        align_corners: bool,
        scales: float | None = None,
    ) -> Value:
        return g.call("composed::resample", self, 1, mode, output_size, [scales], align_corners, antialias)

    def to_area(
        g: GraphContext,
        self: Value,
        output_size: list[int | Value],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        scales = [scales_h, scales_w]
        return g.call("composed::resample", self, 2, mode, output_size, scales, align_corners, antialias)

    def to_volume(
        g: GraphContext,
        self: Value,
        output_size: list[int | Value],
        align_corners: bool,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        scales = [scales_d, scales_h, scales_w]
        return g.call("composed::resample", self, 3, mode, output_size, scales, align_corners, antialias)

    return (to_length, to_area, to_volume)[dimensions - 1]


def _register_smooth(name: str, dimensions: int, mode: str, antialias: bool = False) -> None:
    def by_factors(
        g: GraphContext,
        input: Value,
        output_size: list[int | Value] | None,
        align_corners: bool,
        scale_factors: list[Number] | None,
    ) -> Value:
        call = [input, dimensions, mode, output_size, scale_factors, align_corners, antialias]
        return g.call("composed::resample", *call)

    onnx_symbolic(f"aten::{name}")(_smooth_to_size(dimensions, mode, antialias))
    onnx_symbolic(f"aten::{name}.vec")(by_factors)


for _dimensions in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_dimensions}d", _dimensions, "nearest")
    _register_nearest(f"_upsample_nearest_exact{_dimensions}d", _dimensions, "nearest_exact")
_register_smooth("upsample_linear1d", 1, "linear")
_register_smooth("upsample_bilinear2d", 2, "linear")
_register_smooth("upsample_trilinear3d", 3, "linear")
_register_smooth("upsample_bicubic2d", 2, "cubic")
_register_smooth("_upsample_bilinear2d_aa", 2, "linear", antialias=True)
_register_smooth("_upsample_bicubic2d_aa", 2, "cubic", antialias=True)

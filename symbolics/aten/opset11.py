"""What changes meaning or reach at opset 11."""

from typing import Any

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ..compositions.computed_resampling import by_computation
from ..compositions.resampling import agrees, axes, by_constants, float_scale


@onnx_symbolic("composed::resize", opset=11)
def resize(
    g: GraphContext,
    input: Value,
    scales: list[float] | None,
    sizes: list[int | Value] | None,
    modes: dict[str, Any],
) -> Value:
    """Resize by factors of the spatial axes or to their sizes; at 11 the absent inputs are empty."""
    if scales is not None:
        return g.op("Resize", input, roi=[], scales=[1.0, 1.0, *scales], **modes)
    full = [g.size(input, 0), g.size(input, 1), *(sizes or [])]
    return g.op("Resize", input, roi=[], scales=[], sizes=full, **modes)


@onnx_symbolic("composed::resample", opset=11)
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
    """From 11: Resize, which has the coordinates of ATen."""
    spatial = axes(g, input, dimensions, sizes, scales, mode, antialias)
    is_nearest = mode.startswith("nearest")
    exact = mode == "nearest_exact"
    unlike = antialias or (is_nearest and not all(agrees(axis, exact) for axis in spatial))
    if unlike or g.dtype(input) == DataType.DOUBLE:
        constant = by_constants(g, input, spatial, mode, align_corners, antialias)
        if constant is not None:
            return constant
    factors = [float_scale(axis) for axis in spatial]
    by_factors = all(factor is not None for factor in factors)
    by_sizes = sizes is not None and all(axis.scale is None for axis in spatial)
    says = (by_factors or by_sizes) and all(axis.is_settled for axis in spatial)
    if antialias:
        says = says and not align_corners and g.has("Resize", "antialias")
    if not says or g.dtype(input) == DataType.DOUBLE:
        return by_computation(g, input, spatial, mode, align_corners, antialias)
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
    if by_factors:
        return g.call("composed::resize", input, factors, None, modes)
    return g.call("composed::resize", input, None, sizes, modes)

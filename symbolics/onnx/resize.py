"""Resize at each opset: by the operator where it says the same, else composed."""

from typing import Any

from ...registration import MAXIMUM_OPSET, DataType, GraphContext, Value, onnx_symbolic
from .resizing import Method, composed, whole_factors
from .support import below


def _method(
    mode: str,
    coordinate_transformation_mode: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    antialias: int,
) -> Method:
    return Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )


def _given(g: GraphContext, value: Value | None) -> Value | None:
    """An optional input, None where the empty tensor stands for its absence."""
    return None if value is None or g.shape(value) == (0,) else value


def _options(method: Method) -> dict[str, Any]:
    """The attributes of Resize that are not what it does anyway."""
    plain = Method()
    named = {
        "coordinate_transformation_mode": (method.coordinates, plain.coordinates),
        "nearest_mode": (method.nearest, plain.nearest),
        "cubic_coeff_a": (method.cubic, plain.cubic),
        "exclude_outside": (int(method.exclude_outside), 0),
        "extrapolation_value": (method.extrapolation, 0.0),
        "antialias": (int(method.antialias), 0),
    }
    options = {name: value for name, (value, default) in named.items() if value != default}
    return {"mode": method.mode, **options}


def _register(opset: int, until: int) -> None:
    @below("Resize", until, any_data=True)
    def resize(
        g: GraphContext,
        X: Value,
        roi: Value | None = None,
        scales: Value | None = None,
        sizes: Value | None = None,
        antialias: int = 0,
        axes: list[int] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
        cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0,
        extrapolation_value: float = 0.0,
        keep_aspect_ratio_policy: str = "stretch",
        mode: str = "nearest",
        nearest_mode: str = "round_prefer_floor",
    ) -> Value:
        method = _method(
            mode,
            coordinate_transformation_mode,
            nearest_mode,
            cubic_coeff_a,
            exclude_outside,
            extrapolation_value,
            antialias,
        )
        roi, scales, sizes = (_given(g, item) for item in (roi, scales, sizes))
        return _SAYING[opset](g, X, roi, scales, sizes, axes, keep_aspect_ratio_policy, method)


def _composed(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    """Below 11: Upsample, or Resize at 10, repeat pixels; all else is composed."""
    factors = whole_factors(g, X, scales, method) if axes is None else None
    if factors is not None and g.dtype(X) == DataType.FLOAT:
        return g.call("composed::enlarge", X, factors[2:])
    return composed(g, X, roi, scales, sizes, axes, policy, method)


def _is_newer(axes: list[int] | None, policy: str, method: Method) -> bool:
    """Whether Resize is asked for what it has since 18 or 19."""
    special = axes is not None or policy != "stretch" or method.antialias
    return special or method.coordinates == "half_pixel_symmetric"


def _at_11(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    """At 11 and 12 region and scales are given always, if only as an empty tensor."""
    if _is_newer(axes, policy, method):
        return composed(g, X, roi, scales, sizes, axes, policy, method)
    empty = g.constant([], DataType.FLOAT)
    region = roi if roi is not None else g.constant([], g.dtype(X)) if _is_float(g, X) else empty
    factors = scales if scales is not None and sizes is None else empty
    return g.op("Resize", X, region, factors, sizes, **_options(method))


def _is_float(g: GraphContext, X: Value) -> bool:
    return g.dtype(X) in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16)


def _at_13(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    if _is_newer(axes, policy, method) or method.coordinates == "tf_half_pixel_for_nn":
        return composed(g, X, roi, scales, sizes, axes, policy, method)
    return g.op("Resize", X, roi, scales, sizes, **_options(method))


def _at_18(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    if method.coordinates in ("tf_half_pixel_for_nn", "half_pixel_symmetric"):
        return composed(g, X, roi, scales, sizes, axes, policy, method)
    return _newest(g, X, roi, scales, sizes, axes, policy, method)


def _at_19(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    if method.coordinates == "tf_half_pixel_for_nn":
        return composed(g, X, roi, scales, sizes, axes, policy, method)
    return _newest(g, X, roi, scales, sizes, axes, policy, method)


def _newest(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    given = policy if policy != "stretch" else None
    options = _options(method)
    return g.op("Resize", X, roi, scales, sizes, axes=axes, keep_aspect_ratio_policy=given, **options)


_SAYING = {9: _composed, 11: _at_11, 13: _at_13, 18: _at_18, 19: _at_19}
for _opset, _until in zip(_SAYING, (*list(_SAYING)[1:], MAXIMUM_OPSET + 1), strict=True):
    _register(_opset, _until)


@onnx_symbolic("before13::Resize")
def resize_11(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """At 11 and 12, where `tf_half_pixel_for_nn` ends."""
    return g.op_of_any_data(
        "Resize",
        X,
        roi,
        scales,
        sizes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        mode=mode,
        nearest_mode=nearest_mode,
    )

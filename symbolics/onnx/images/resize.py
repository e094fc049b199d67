"""Resize and Upsample: the operator if the target's version has the same meaning, else a composition.

The formulas are those of the operator's specification. Coordinates are computed in FLOAT, as onnxruntime
computes them, because rounding decides the nearest pixels; in DOUBLE for interpolation of DOUBLE.
"""

import dataclasses
from typing import Any

import numpy as np

from ....registration import MAXIMUM_OPSET, DataType, GraphContext, Value, dtypes, onnx_symbolic, schemas
from ...compositions.sizes import Size, known_rank
from ...compositions.spatial.resampling import Method, Numbers, arithmetic, number, pixels, resampled
from ..support import below

_DEFAULTS: dict[str, Any] = {
    "antialias": 0,
    "coordinate_transformation_mode": "half_pixel",
    "cubic_coeff_a": -0.75,
    "exclude_outside": 0,
    "extrapolation_value": 0.0,
    "keep_aspect_ratio_policy": "stretch",
    "nearest_mode": "round_prefer_floor",
}


def _unless_omitted(g: GraphContext, value: Any) -> Any:
    """An optional input; None if it is the empty tensor that means "omitted"."""
    return None if isinstance(value, Value) and g.shape(value) == (0,) else value


@onnx_symbolic("onnx::Resize")
@below("Resize", MAXIMUM_OPSET + 1, any_data=True)
def resize(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | list[float] | None = None,
    sizes: Value | list[int | Value] | None = None,
    axes: list[int] | None = None,
    mode: str = "nearest",
    **attributes: Any,
) -> Value:
    options = {name: value for name, value in attributes.items() if value != _DEFAULTS[name]}
    attributes = _DEFAULTS | attributes
    roi, scales, sizes = (_unless_omitted(g, item) for item in (roi, scales, sizes))
    stretches = roi is None and attributes["keep_aspect_ratio_policy"] == "stretch"
    if axes is not None and stretches and not g.has("Resize", "axes"):
        scales, sizes = _for_all_axes(g, X, scales, sizes, [g.axis(axis, known_rank(g, X)) for axis in axes])
        axes = None
    wanted = [*options, *(["axes"] if axes is not None else [])]
    coordinates = attributes["coordinate_transformation_mode"]
    says = g.has("Resize", *wanted, coordinate_transformation_mode=coordinates)
    if not says or coordinates == "tf_half_pixel_for_nn":
        return _composed(g, X, roi, scales, sizes, axes, {"mode": mode, **attributes})
    schema = schemas.operator_schema("Resize", g.opset)
    if schema is not None and not schema.inputs[1].optional:
        empty = g.constant([], DataType.FLOAT)
        roi = empty if roi is None else roi
        scales = empty if scales is None or sizes is not None else scales
    result: Value = g.op("Resize", X, roi, scales, sizes, axes=axes, mode=mode, **options)
    return result


Scalars = list[Any]
"""Scales or sizes of axes: numbers where they are known, else values without dimensions."""


def _items(g: GraphContext, values: Any, count: int) -> Scalars:
    array = None if isinstance(values, list) else g.constant_value(values)
    if isinstance(values, list) or array is not None:
        listed = values if array is None else array.reshape(-1).tolist()
        if len(listed) != count:
            raise g.refuse(f"it has {len(listed)} scales or sizes for {count} axes")
        result: Scalars = listed
        return result
    none = g.constant([], DataType.INT64)
    return [g.op("Reshape", g.op("Gather", values, i, axis=0), none) for i in range(count)]


def _for_all_axes(g: GraphContext, X: Value, scales: Any, sizes: Any, axes: list[int]) -> tuple[Any, Any]:
    """Extend scales or sizes of some axes to all axes."""
    given = dict(zip(axes, _items(g, scales if sizes is None else sizes, len(axes)), strict=True))
    every = range(known_rank(g, X))
    if sizes is not None:
        return None, [given[axis] if axis in given else g.size(X, axis) for axis in every]
    whole = [given.get(axis, 1.0) for axis in every]
    if not any(isinstance(item, Value) for item in whole):
        return whole, None
    parts = [g.op("Reshape", g.constant(item, DataType.FLOAT), [1]) for item in whole]
    return g.op("Concat", *parts, axis=0), None


@dataclasses.dataclass(frozen=True)
class _Axis:
    """One axis: its size, the size of the result, the scale, the unrounded size, and the region."""

    size: Size
    count: Size
    scale: Numbers
    width: Numbers
    region: tuple[Numbers, Numbers] | None


def _composed(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Any,
    sizes: Any,
    axes: list[int] | None,
    method: dict[str, Any],
) -> Value:
    """A composition of Resize; below 11 Upsample, or Resize of opset 10, if pixels are repeated."""
    rank, dtype, mode = known_rank(g, X), g.dtype(X), method["mode"]
    at = [g.axis(axis, rank) for axis in axes] if axes is not None else list(range(rank))
    ratios = None if scales is None else _items(g, scales, len(at))
    if sizes is None and axes is None and dtype in _REPEATED and _repeats(ratios, method):
        return g.op("Upsample" if g.has("Upsample") else "Resize", X, mode="nearest", scales=scales)
    if mode != "nearest" and dtype not in dtypes.FLOATS:
        raise g.refuse(f"interpolation of {dtype} is not supported")
    wide = DataType.DOUBLE if dtype == DataType.DOUBLE and mode != "nearest" else DataType.FLOAT
    data = X if mode == "nearest" or dtype == wide else g.cast(X, wide)
    how = Method(
        mode,
        method["nearest_mode"],
        method["cubic_coeff_a"],
        bool(method["exclude_outside"]),
        bool(method["antialias"]),
    )
    coordinates = method["coordinate_transformation_mode"]
    for position, axis in zip(at, _axes(g, X, roi, ratios, sizes, at, method, wide), strict=True):
        crops = coordinates == "tf_crop_and_resize"
        if not crops and not isinstance(axis.scale, Value) and axis.scale == 1:
            continue
        places = _places(g, axis, coordinates, wide)
        step = arithmetic(g, "Div", 1.0, axis.scale)
        data = resampled(g, data, position, axis.size, places, step, how)
        if crops:
            data = _extrapolated(g, data, position, number(g, axis.size, wide), places, method)
    return data if dtype is None else g.cast(data, dtype)


_REPEATED = frozenset({DataType.FLOAT, DataType.INT32, DataType.INT8, DataType.UINT8})
"""Element types for which onnxruntime has Upsample, and Resize of opset 10."""


def _repeats(ratios: Scalars | None, method: dict[str, Any]) -> bool:
    """Whether every pixel of an image is repeated a whole number of times."""
    if ratios is None or method["mode"] != "nearest" or len(ratios) < 3:
        return False
    coordinates, rounding = method["coordinate_transformation_mode"], method["nearest_mode"]
    corner = (coordinates, rounding) == ("asymmetric", "floor")
    centre = coordinates == "half_pixel" and rounding.startswith("round")
    whole = all(not isinstance(r, Value) and r >= 1 and float(r).is_integer() for r in ratios)
    return whole and (corner or centre) and ratios[:2] == [1, 1]


def _axes(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    ratios: Scalars | None,
    sizes: Any,
    axes: list[int],
    method: dict[str, Any],
    wide: DataType,
) -> list[_Axis]:
    count, policy = len(axes), method["keep_aspect_ratio_policy"]
    old = [g.size(X, at) for at in axes]
    lengths = [number(g, size, DataType.FLOAT) for size in old]

    def whole(numbers: Numbers) -> Size:
        floor = arithmetic(g, "Floor", numbers)
        return g.cast(floor, DataType.INT64) if isinstance(floor, Value) else int(floor)

    def converted(value: Numbers) -> Numbers:
        return g.cast(value, wide) if isinstance(value, Value) else wide.numpy().type(value)

    if sizes is not None:
        new = [g.cast(n, DataType.INT64) if isinstance(n, Value) else int(n) for n in _items(g, sizes, count)]
        scales = [
            arithmetic(g, "Div", number(g, n, wide), number(g, o, wide))
            for n, o in zip(new, old, strict=True)
        ]
        if policy != "stretch":
            name = "Less" if policy == "not_larger" else "Greater"
            chosen = scales[0]
            for scale in scales[1:]:
                chosen = arithmetic(g, "Where", arithmetic(g, name, scale, chosen), scale, chosen)
            scales = [chosen] * count
            new = [
                whole(arithmetic(g, "Add", arithmetic(g, "Mul", number(g, o, wide), chosen), 0.5))
                for o in old
            ]
        widths = [number(g, n, wide) for n in new]
    elif ratios is not None:
        single = [item if isinstance(item, Value) else np.float32(item) for item in ratios]
        products = [arithmetic(g, "Mul", o, r) for o, r in zip(lengths, single, strict=True)]
        new, widths = [whole(item) for item in products], [converted(item) for item in products]
        scales = [converted(item) for item in single]
    else:
        raise g.refuse("neither scales nor sizes are given")
    regions: list[tuple[Numbers, Numbers] | None] = [None] * count
    if roi is not None:
        ends = [converted(item) for item in _items(g, roi, 2 * count)]
        regions = list(zip(ends[:count], ends[count:], strict=True))
    return [_Axis(*parts) for parts in zip(old, new, scales, widths, regions, strict=True)]


def _places(g: GraphContext, axis: _Axis, coordinates: str, wide: DataType) -> Numbers:
    """The input coordinate of each pixel of the result."""

    def add(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Add", a, b)

    def sub(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Sub", a, b)

    def mul(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Mul", a, b)

    def div(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Div", a, b)

    def if_single(one: Numbers, several: Numbers) -> Numbers:
        return arithmetic(g, "Where", arithmetic(g, "Equal", axis.count, 1), one, several)

    numbers, size, scale = pixels(g, axis.count, wide), number(g, axis.size, wide), axis.scale
    last = sub(size, 1.0)
    if coordinates == "asymmetric":
        return div(numbers, scale)
    if coordinates == "tf_half_pixel_for_nn":
        return div(add(numbers, 0.5), scale)
    if coordinates in ("align_corners", "tf_crop_and_resize"):
        gaps = sub(axis.width, 1.0)
        gaps = arithmetic(g, "Where", arithmetic(g, "Less", arithmetic(g, "Abs", gaps), 1e-30), 1.0, gaps)
        if coordinates == "align_corners":
            return if_single(0.0, div(mul(numbers, last), gaps))
        if axis.region is None:
            raise g.refuse("roi must be given")
        start, end = axis.region
        moved = div(mul(mul(numbers, sub(end, start)), last), gaps)
        return if_single(mul(mul(add(start, end), last), 0.5), add(mul(start, last), moved))
    centred = sub(div(add(numbers, 0.5), scale), 0.5)
    if coordinates == "pytorch_half_pixel":
        return if_single(-0.5, centred)
    if coordinates == "half_pixel_symmetric":
        return add(mul(mul(size, 0.5), sub(1.0, div(number(g, axis.count, wide), axis.width))), centred)
    if coordinates != "half_pixel":
        raise g.refuse(f"coordinate_transformation_mode '{coordinates}' is not supported")
    return centred


def _extrapolated(
    g: GraphContext, data: Value, at: int, size: Numbers, places: Numbers, method: dict[str, Any]
) -> Value:
    """Replace pixels outside of the input by a number."""
    last = arithmetic(g, "Sub", size, 1.0)
    low, high = arithmetic(g, "Less", places, 0.0), arithmetic(g, "Greater", places, last)
    away = g.constant(arithmetic(g, "Or", low, high))
    behind = list(range(1, known_rank(g, data) - at))
    away = g.op("Unsqueeze", away, axes=behind) if behind else away
    filler = g.constant(method["extrapolation_value"], g.dtype(data) or DataType.FLOAT)
    return g.call("composed::where", condition=away, self=filler, other=data)


@onnx_symbolic("before13::Resize")
def resize_11(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    **attributes: Any,
) -> Value:
    """Opsets 11 and 12, the only ones with `tf_half_pixel_for_nn`."""
    result: Value = g.op_of_any_data("Resize", X, roi, scales, sizes, **attributes)
    return result


@onnx_symbolic("before10::Upsample")
def upsample(
    g: GraphContext,
    X: Value,
    scales: Value | list[float] | None = None,
    mode: str = "nearest",
    width_scale: float | None = None,
    height_scale: float | None = None,
) -> Value:
    """Resize since 10. Coordinates are scaled from the corner."""
    if scales is None:
        scales = [1.0, 1.0, height_scale or 1.0, width_scale or 1.0]
    given = g.constant(scales, DataType.FLOAT)
    mode = "linear" if mode in ("linear", "bilinear") else "nearest"
    return g.op_of_any_data(
        "Resize",
        X,
        None,
        given,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@onnx_symbolic("before11::Resize")
def resize_10(g: GraphContext, X: Value, scales: Value, mode: str = "nearest") -> Value:
    """Opset 10: like Upsample. Axes that shrink take the nearest pixel above, as in onnxruntime."""
    array = g.constant_value(scales)
    if mode != "nearest" or (array is not None and np.all(array >= 1)):
        return upsample(g, X, scales, mode)
    if array is None:
        ones = g.constant(np.ones(known_rank(g, X), dtype=np.float32))
        X, scales = upsample(g, X, g.op("Max", scales, ones)), g.op("Min", scales, ones)
    elif np.any(array > 1):
        X, scales = upsample(g, X, g.constant(np.maximum(array, 1))), g.constant(np.minimum(array, 1))
    return g.op_of_any_data(
        "Resize",
        X,
        None,
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="ceil",
    )

"""Resize where an opset does not have it, or not these coordinates, axes or filters.

Source pixels and their weights are computed along one axis after the other, in DOUBLE, from scales and
sizes that may be computed themselves. The formulas are those of the operator's specification.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes
from ..compositions.sizes import known_rank

_DOUBLE = DataType.DOUBLE


@dataclasses.dataclass(frozen=True)
class Method:
    """How Resize is to interpolate: its attributes."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """One axis: its size before and after as whole numbers and as DOUBLE, its scale, and its region."""

    size: Value
    count: Value
    scale: Value
    width: Value
    region: tuple[Value, Value] | None


def _double(g: GraphContext, value: Value | int | float) -> Value:
    return g.cast(value, _DOUBLE) if isinstance(value, Value) else g.constant(float(value), _DOUBLE)


def _places(g: GraphContext, line: Line, method: Method) -> Value:
    """Where each pixel of the result lies in the input."""
    pixels = _double(g, g.call("sym::range", start=0, end=line.count))
    name = method.coordinates
    size, scale = _double(g, line.size), line.scale
    if name == "asymmetric":
        return g.op("Div", pixels, scale)
    if name == "tf_half_pixel_for_nn":
        return g.op("Div", g.op("Add", pixels, 0.5), scale)
    if name == "align_corners":
        apart = g.op("Div", g.op("Sub", size, 1.0), _beside_zero(g, g.op("Sub", line.width, 1.0)))
        return g.op("Where", g.op("Equal", line.count, g.constant(1)), 0.0, g.op("Mul", pixels, apart))
    if name == "tf_crop_and_resize":
        assert line.region is not None
        start, end = line.region
        last = g.op("Sub", size, 1.0)
        step = g.op("Div", last, _beside_zero(g, g.op("Sub", line.width, 1.0)))
        moved = g.op("Mul", g.op("Mul", pixels, g.op("Sub", end, start)), step)
        several = g.op("Add", g.op("Mul", start, last), moved)
        middle = g.op("Mul", g.op("Mul", g.op("Add", start, end), last), 0.5)
        return g.op("Where", g.op("Equal", line.count, g.constant(1)), middle, several)
    centred = g.op("Sub", g.op("Div", g.op("Add", pixels, 0.5), scale), 0.5)
    if name == "pytorch_half_pixel":
        return g.op("Where", g.op("Equal", line.count, g.constant(1)), -0.5, centred)
    if name == "half_pixel_symmetric":
        ratio = g.op("Div", _double(g, line.count), line.width)
        offset = g.op("Mul", g.op("Mul", size, 0.5), g.op("Sub", 1.0, ratio))
        return g.op("Add", offset, centred)
    if name != "half_pixel":
        raise g.refuse(f"coordinates of the kind '{name}'")
    return centred


def _beside_zero(g: GraphContext, value: Value) -> Value:
    zero = g.op("Less", g.op("Abs", value), 1e-30)
    return g.op("Where", zero, 1.0, value)


def _clamped(g: GraphContext, positions: Value, size: Value) -> Value:
    last = g.op("Sub", size, 1)
    return g.call("sym::min", a=g.call("sym::max", a=positions, b=0), b=last)


def _nearest(g: GraphContext, places: Value, how: str) -> Value:
    if how == "floor":
        return g.op("Floor", places)
    if how == "ceil":
        return g.op("Ceil", places)
    if how == "round_prefer_ceil":
        return g.op("Floor", g.op("Add", places, 0.5))
    return g.op("Ceil", g.op("Sub", places, 0.5))


def _cubic(g: GraphContext, distance: Value, a: float) -> Value:
    """The cubic filter at a distance that is not negative."""

    def polynomial(*coefficients: float) -> Value:
        result = g.op("Add", g.op("Mul", distance, coefficients[0]), coefficients[1])
        for coefficient in coefficients[2:]:
            result = g.op("Add", g.op("Mul", result, distance), coefficient)
        return result

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    outside = g.op("Where", g.op("Less", distance, 2.0), far, 0.0)
    return g.op("Where", g.op("Greater", distance, 1.0), outside, near)


def _triangle(g: GraphContext, distance: Value) -> Value:
    rest = g.op("Sub", 1.0, distance)
    return g.op("Where", g.op("Less", rest, 0.0), 0.0, rest)


def _filter(g: GraphContext, method: Method) -> Callable[[Value], Value]:
    if method.mode == "cubic":
        return lambda distance: _cubic(g, distance, method.cubic)
    return lambda distance: _triangle(g, distance)


def _column(g: GraphContext, values: Value, rank: int, at: int) -> Value:
    after = rank - at - 1
    return g.op("Unsqueeze", values, axes=list(range(1, after + 1))) if after else values


def _taps(g: GraphContext, data: Value, line: Line, places: Value, method: Method, at: int) -> Value:
    """A few pixels around each place, weighted by their distance."""
    rank = known_rank(g, data)
    dtype = g.dtype(data) or DataType.FLOAT
    first = g.op("Floor", places)
    whole = g.cast(first, DataType.INT64)
    offsets = range(-1, 3) if method.mode == "cubic" else range(2)
    weigh = _filter(g, method)
    weights, pixels = [], []
    for offset in offsets:
        position = g.op("Add", whole, offset)
        weight = weigh(g.op("Abs", g.op("Sub", places, g.op("Add", first, float(offset)))))
        inside = _clamped(g, position, line.size)
        if method.exclude_outside:
            weight = g.op("Where", g.op("Equal", position, inside), weight, 0.0)
        weights.append(weight)
        pixels.append(g.op("Gather", data, inside, axis=at))
    if method.exclude_outside:
        total = g.op("Sum", *weights)
        weights = [g.op("Div", weight, total) for weight in weights]
    products = [
        g.op("Mul", pixel, _column(g, g.cast(weight, dtype), rank, at))
        for pixel, weight in zip(pixels, weights, strict=True)
    ]
    return g.op("Sum", *products)


def _filtered(g: GraphContext, data: Value, line: Line, places: Value, method: Method, at: int) -> Value:
    """Every pixel weighted, by a filter that is as wide as the result is smaller."""
    rank = known_rank(g, data)
    dtype = g.dtype(data) or DataType.FLOAT
    margin = g.op("Mul", line.size, 2)
    numbers = g.call("sym::range", start=0, end=g.op("Mul", line.size, 5))
    positions = g.op("Sub", numbers, margin)
    shrink = g.op("Where", g.op("Less", line.scale, 1.0), line.scale, 1.0)
    apart = g.op("Sub", _double(g, positions), g.op("Unsqueeze", places, axes=[1]))
    weights = _filter(g, method)(g.op("Mul", g.op("Abs", apart), shrink))
    inside = _clamped(g, positions, line.size)
    if method.exclude_outside:
        weights = g.op("Where", g.op("Equal", positions, inside), weights, 0.0)
    weights = g.op("Div", weights, g.op("ReduceSum", weights, axes=[1], keepdims=1))
    wide = g.op("Gather", data, inside, axis=at)
    perm = [dim for dim in range(rank) if dim != at]
    last = g.op("Transpose", wide, perm=[*perm, at])
    product = g.op("MatMul", last, g.cast(g.op("Transpose", weights, perm=[1, 0]), dtype))
    return g.op("Transpose", product, perm=np.argsort([*perm, at]).tolist())


def resized_along(g: GraphContext, data: Value, line: Line, method: Method, at: int) -> Value:
    """One axis at its new size."""
    places = _places(g, line, method)
    if method.mode == "nearest":
        chosen = g.cast(_nearest(g, places, method.nearest), DataType.INT64)
        result = g.op("Gather", data, _clamped(g, chosen, line.size), axis=at)
    elif method.antialias:
        result = _filtered(g, data, line, places, method, at)
    else:
        result = _taps(g, data, line, places, method, at)
    if method.coordinates != "tf_crop_and_resize":
        return result
    last = _double(g, g.op("Sub", line.size, 1))
    away = g.op("Or", g.op("Less", places, 0.0), g.op("Greater", places, last))
    away = _column(g, away, known_rank(g, data), at)
    filler = g.constant(method.extrapolation, g.dtype(data) or DataType.FLOAT)
    return g.call("composed::where", condition=away, self=filler, other=result)


def _is_given(g: GraphContext, value: Value | None) -> bool:
    """Whether an optional input is there, and not the empty tensor that stood for its absence."""
    return value is not None and g.shape(value) != (0,)


def _lines(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int],
    policy: str,
) -> list[Line]:
    count = len(axes)
    old = [g.constant(g.size(X, at), DataType.INT64) for at in axes]
    none = g.constant([], DataType.INT64)

    def item(values: Value, i: int) -> Value:
        return g.op("Reshape", g.op("Gather", values, i, axis=0), none)

    if sizes is not None and _is_given(g, sizes):
        new = [g.cast(item(sizes, i), DataType.INT64) for i in range(count)]
        ratios = [g.op("Div", _double(g, n), _double(g, o)) for n, o in zip(new, old, strict=True)]
        if policy != "stretch":
            name = "Less" if policy == "not_larger" else "Greater"
            chosen = ratios[0]
            for ratio in ratios[1:]:
                chosen = g.op("Where", g.op(name, ratio, chosen), ratio, chosen)
            ratios = [chosen] * count
            halves = [g.op("Add", g.op("Mul", chosen, _double(g, o)), 0.5) for o in old]
            new = [g.cast(g.op("Floor", half), DataType.INT64) for half in halves]
        widths = [_double(g, n) for n in new]
    elif scales is not None and _is_given(g, scales):
        ratios = [_double(g, item(scales, i)) for i in range(count)]
        widths = [g.op("Mul", _double(g, o), r) for o, r in zip(old, ratios, strict=True)]
        new = [g.cast(g.op("Floor", width), DataType.INT64) for width in widths]
    else:
        raise g.refuse("neither scales nor sizes are given")
    regions: list[tuple[Value, Value] | None] = [None] * count
    if roi is not None and _is_given(g, roi):
        regions = [(_double(g, item(roi, i)), _double(g, item(roi, i + count))) for i in range(count)]
    return [Line(*parts) for parts in zip(old, new, ratios, widths, regions, strict=True)]


def composed(
    g: GraphContext,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    axes: list[int] | None,
    policy: str,
    method: Method,
) -> Value:
    """The whole of Resize."""
    rank = known_rank(g, X)
    at = [axis % rank for axis in axes] if axes is not None else list(range(rank))
    dtype = g.dtype(X)
    if method.mode != "nearest" and dtype not in dtypes.FLOATS:
        raise g.refuse(f"{dtype} between its own values")
    narrow = method.mode != "nearest" and dtype not in (DataType.FLOAT, DataType.DOUBLE)
    data = g.cast(X, DataType.FLOAT) if narrow else X
    for axis, line in zip(at, _lines(g, X, roi, scales, sizes, at, policy), strict=True):
        if not _stays(g, line, method):
            data = resized_along(g, data, line, method, axis)
    return g.cast(data, dtype) if narrow and dtype is not None else data


def _stays(g: GraphContext, line: Line, method: Method) -> bool:
    """Whether an axis is known to keep its size and its pixels."""
    if method.coordinates == "tf_crop_and_resize":
        return False
    known = [g.constant_value(value) for value in (line.size, line.count, line.scale)]
    if any(array is None for array in known):
        return False
    size, count, scale = (array.item() for array in known if array is not None)
    return bool(size == count and scale == 1.0)


def whole_factors(g: GraphContext, X: Value, scales: Value | None, method: Method) -> list[int] | None:
    """The whole numbers that images are enlarged by, where nearest pixels are simply repeated."""
    array = g.constant_value(scales) if scales is not None else None
    if array is None or array.size != 4 or g.rank(X) != 4 or method.mode != "nearest":
        return None
    numbers = [float(item) for item in array.reshape(-1)]
    whole = all(number >= 1 and math.floor(number) == number for number in numbers)
    corner = (method.coordinates, method.nearest) == ("asymmetric", "floor")
    centre = method.coordinates == "half_pixel" and method.nearest.startswith("round")
    return [int(item) for item in numbers] if whole and (corner or centre) and numbers[:2] == [1, 1] else None

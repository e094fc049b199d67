"""Resize and Upsample: the operator if the target's version has the same meaning, else a composition.

The formulas are those of the operator's specification. Coordinates are computed in FLOAT, as onnxruntime
computes them, because rounding decides the nearest pixels; in DOUBLE for interpolation of DOUBLE.

These functions serve ONNX files, and operators that are emitted as Resize. PyTorch's `interpolate` at opsets
whose Resize lacks its modes is in `symbolics/aten/opset9/nn/interpolation.py`. Both use
`compositions/spatial/resampling.py`.
"""

import dataclasses
from typing import Any

import numpy as np

from ....registration import MAXIMUM_OPSET, DataType, GraphContext, Value, dtypes, onnx_symbolic, schemas
from ...compositions.size_arithmetic import Size, known_rank
from ...compositions.spatial.resampling import Method, Numbers, arithmetic, number, pixels, resample
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


@onnx_symbolic("onnx::Resize")
# At every opset: the function itself decides whether Resize has the meaning that a file asks for.
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
    roi, scales, sizes = (_without_empty(g, value) for value in (roi, scales, sizes))
    stretches = roi is None and attributes["keep_aspect_ratio_policy"] == "stretch"
    # `axes` begins at 18. Before, the other axes get a scale of 1, or their own sizes.
    if axes is not None and stretches and not g.has("Resize", "axes"):
        scales, sizes = _for_all_axes(g, X, scales, sizes, [g.axis(axis, known_rank(g, X)) for axis in axes])
        axes = None
    argument_names = [*options, *(["axes"] if axes is not None else [])]
    coordinates = attributes["coordinate_transformation_mode"]
    has_mode = g.has("Resize", *argument_names, coordinate_transformation_mode=coordinates)
    # The mode tf_half_pixel_for_nn exists only at opsets 11 and 12, so it is always composed.
    if not has_mode or coordinates == "tf_half_pixel_for_nn":
        return _compose_resize(g, X, roi, scales, sizes, axes, {"mode": mode, **attributes})
    schema = schemas.operator_schema("Resize", g.opset)
    if schema is not None and not schema.inputs[1].optional:
        empty = g.constant([], DataType.FLOAT)
        roi = empty if roi is None else roi
        scales = empty if scales is None or sizes is not None else scales
    result: Value = g.op("Resize", X, roi, scales, sizes, axes=axes, mode=mode, **options)
    return result


@onnx_symbolic("form::Resize.samples")
def resize_by_samples(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | list[float] | None = None,
    sizes: Value | list[int | Value] | None = None,
    axes: list[int] | None = None,
    mode: str = "nearest",
    **attributes: Any,
) -> Value:
    """Weighted sums of gathered pixels, at every opset; pixels that are repeated stay."""
    roi, scales, sizes = (_without_empty(g, value) for value in (roi, scales, sizes))
    method = {"mode": mode, **_DEFAULTS, **attributes}
    if scales is not None and axes is None and _repeats(_items(g, scales, known_rank(g, X)), method):
        raise g.refuse("pixels are repeated a whole number of times")
    return _compose_resize(g, X, roi, scales, sizes, axes, method)


@onnx_symbolic("form::Resize.repeated")
def resize_by_repetition(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | list[float] | None = None,
    sizes: Value | list[int | Value] | None = None,
    mode: str = "nearest",
    result_shape: list[int] | None = None,
    **attributes: Any,
) -> Value:
    """Pixels that are repeated a whole number of times, by coordinates from the corner."""
    sizes_before = [size for size in g.shape(X) or () if isinstance(size, int) and size]
    if result_shape is None or len(sizes_before) != len(result_shape):
        raise g.refuse("the sizes must be known")
    ratios = [size / before for size, before in zip(result_shape, sizes_before, strict=True)]
    if not _repeats(ratios, {"mode": mode, **_DEFAULTS, **attributes}):
        raise g.refuse("pixels are not repeated a whole number of times")
    return g.op(
        "Resize",
        X,
        scales=ratios,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@onnx_symbolic("form::Resize.two_dimensions")
def resize_rows(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | list[float] | None = None,
    sizes: Value | list[int | Value] | None = None,
    axes: list[int] | None = None,
    mode: str = "nearest",
    **attributes: Any,
) -> Value:
    """Sequences as images of one row."""
    roi, scales, sizes = (_without_empty(g, value) for value in (roi, scales, sizes))
    if roi is not None or axes is not None or g.rank(X) != 3:
        raise g.refuse("only sequences become images")
    ratios, counts = (None if value is None else _items(g, value, 3) for value in (scales, sizes))
    for numbers in (ratios, counts):
        if numbers is not None:
            numbers.insert(2, 1)
    rows = g.op("Unsqueeze", X, axes=[2])
    image: Value = g.op("Resize", rows, None, ratios, counts, mode=mode, **attributes)
    return g.op("Squeeze", image, axes=[2])


def _without_empty(g: GraphContext, value: Any) -> Any:
    """An optional input, or None for an empty tensor, which means that the input is omitted."""
    return None if isinstance(value, Value) and g.shape(value) == (0,) else value


Scalars = list[Any]
"""Scales or sizes of axes: numbers where they are known, else values without dimensions."""


def _items(g: GraphContext, values: Any, count: int) -> Scalars:
    array = None if isinstance(values, list) else g.constant_value(values)
    if isinstance(values, list) or array is not None:
        numbers: Scalars = values if array is None else array.reshape(-1).tolist()
        if len(numbers) != count:
            raise g.refuse(f"it has {len(numbers)} scales or sizes for {count} axes")
        return numbers
    none = g.constant([], DataType.INT64)
    return [g.op("Reshape", g.op("Gather", values, i, axis=0), none) for i in range(count)]


def _for_all_axes(g: GraphContext, X: Value, scales: Any, sizes: Any, axes: list[int]) -> tuple[Any, Any]:
    """Extend scales or sizes of some axes to all axes."""
    by_axis = dict(zip(axes, _items(g, scales if sizes is None else sizes, len(axes)), strict=True))
    all_axes = range(known_rank(g, X))
    if sizes is not None:
        return None, [by_axis[axis] if axis in by_axis else g.size(X, axis) for axis in all_axes]
    all_scales = [by_axis.get(axis, 1.0) for axis in all_axes]
    if not any(isinstance(scale, Value) for scale in all_scales):
        return all_scales, None
    vectors = [g.op("Reshape", g.constant(scale, DataType.FLOAT), [1]) for scale in all_scales]
    return g.op("Concat", *vectors, axis=0), None


@dataclasses.dataclass(frozen=True)
class _Axis:
    """One axis: its size, the size of the result, the scale, the unrounded size, and the region."""

    size: Size
    count: Size
    scale: Numbers
    width: Numbers
    region: tuple[Numbers, Numbers] | None


def _compose_resize(
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
    dims = [g.axis(axis, rank) for axis in axes] if axes is not None else list(range(rank))
    ratios = None if scales is None else _items(g, scales, len(dims))
    if sizes is None and axes is None and dtype in _REPEATED and _repeats(ratios, method):
        return g.op("Upsample" if g.has("Upsample") else "Resize", X, mode="nearest", scales=scales)
    if mode != "nearest" and dtype not in dtypes.FLOATS:
        raise g.refuse(f"interpolation of {dtype} is not supported")
    wide = DataType.DOUBLE if dtype == DataType.DOUBLE and mode != "nearest" else DataType.FLOAT
    data = X if mode == "nearest" or dtype == wide else g.cast(X, wide)
    interpolation = Method(
        mode,
        method["nearest_mode"],
        method["cubic_coeff_a"],
        bool(method["exclude_outside"]),
        bool(method["antialias"]),
    )
    coordinates = method["coordinate_transformation_mode"]
    for dim, axis in zip(dims, _axes(g, X, roi, ratios, sizes, dims, method, wide), strict=True):
        crops = coordinates == "tf_crop_and_resize"
        # At a scale of 1 every pixel stays where it is, unless a region crops the axis.
        if not crops and not isinstance(axis.scale, Value) and axis.scale == 1:
            continue
        positions = _input_coordinates(g, axis, coordinates, wide)
        step = arithmetic(g, "Div", 1.0, axis.scale)
        data = resample(g, data, dim, axis.size, positions, step, interpolation)
        if crops:
            data = _extrapolate(g, data, dim, number(g, axis.size, wide), positions, method)
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
    input_sizes = [g.size(X, axis) for axis in axes]
    lengths = [number(g, size, DataType.FLOAT) for size in input_sizes]

    def floor_size(numbers: Numbers) -> Size:
        floor = arithmetic(g, "Floor", numbers)
        return g.cast(floor, DataType.INT64) if isinstance(floor, Value) else int(floor)

    def convert(value: Numbers) -> Numbers:
        return g.cast(value, wide) if isinstance(value, Value) else wide.numpy().type(value)

    if sizes is not None:
        output_sizes = [
            g.cast(n, DataType.INT64) if isinstance(n, Value) else int(n) for n in _items(g, sizes, count)
        ]
        scales = [
            arithmetic(g, "Div", number(g, n, wide), number(g, o, wide))
            for n, o in zip(output_sizes, input_sizes, strict=True)
        ]
        if policy != "stretch":
            name = "Less" if policy == "not_larger" else "Greater"
            common_scale = scales[0]
            # Not larger: the smallest scale fits all axes; not smaller: the largest one.
            for scale in scales[1:]:
                common_scale = arithmetic(
                    g, "Where", arithmetic(g, name, scale, common_scale), scale, common_scale
                )
            scales = [common_scale] * count
            output_sizes = [
                floor_size(arithmetic(g, "Add", arithmetic(g, "Mul", number(g, o, wide), common_scale), 0.5))
                for o in input_sizes
            ]
        widths = [number(g, n, wide) for n in output_sizes]
    elif ratios is not None:
        float_ratios = [ratio if isinstance(ratio, Value) else np.float32(ratio) for ratio in ratios]
        products = [arithmetic(g, "Mul", o, r) for o, r in zip(lengths, float_ratios, strict=True)]
        output_sizes, widths = (
            [floor_size(product) for product in products],
            [convert(product) for product in products],
        )
        scales = [convert(ratio) for ratio in float_ratios]
    else:
        raise g.refuse("neither scales nor sizes are given")
    regions: list[tuple[Numbers, Numbers] | None] = [None] * count
    if roi is not None:
        ends = [convert(border) for border in _items(g, roi, 2 * count)]
        regions = list(zip(ends[:count], ends[count:], strict=True))
    return [_Axis(*fields) for fields in zip(input_sizes, output_sizes, scales, widths, regions, strict=True)]


def _input_coordinates(g: GraphContext, axis: _Axis, coordinates: str, wide: DataType) -> Numbers:
    """The input coordinate of each pixel of the result."""

    def add(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Add", a, b)

    def sub(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Sub", a, b)

    def mul(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Mul", a, b)

    def div(a: Numbers, b: Numbers) -> Numbers:
        return arithmetic(g, "Div", a, b)

    def if_single(single_pixel: Numbers, several: Numbers) -> Numbers:
        return arithmetic(g, "Where", arithmetic(g, "Equal", axis.count, 1), single_pixel, several)

    numbers, size, scale = pixels(g, axis.count, wide), number(g, axis.size, wide), axis.scale
    last = sub(size, 1.0)
    if coordinates == "asymmetric":
        return div(numbers, scale)
    if coordinates == "tf_half_pixel_for_nn":
        return div(add(numbers, 0.5), scale)
    if coordinates in ("align_corners", "tf_crop_and_resize"):
        # The text of the operator has the length of the result here, as PyTorch and onnxruntime; only
        # onnx.reference takes the unrounded one.
        gaps = sub(number(g, axis.count, wide), 1.0)
        # A single output pixel has no gaps; dividing by 1 instead avoids NaN in the branch that is not
        # taken.
        gaps = arithmetic(g, "Where", arithmetic(g, "Less", gaps, 1.0), 1.0, gaps)
        if coordinates == "align_corners":
            return if_single(0.0, div(mul(numbers, last), gaps))
        if axis.region is None:
            raise g.refuse("roi must be given")
        start, end = axis.region
        offset = div(mul(mul(numbers, sub(end, start)), last), gaps)
        return if_single(mul(mul(add(start, end), last), 0.5), add(mul(start, last), offset))
    centred = sub(div(add(numbers, 0.5), scale), 0.5)
    if coordinates == "pytorch_half_pixel":
        return if_single(-0.5, centred)
    if coordinates == "half_pixel_symmetric":
        return add(mul(mul(size, 0.5), sub(1.0, div(number(g, axis.count, wide), axis.width))), centred)
    if coordinates != "half_pixel":
        raise g.refuse(f"coordinate_transformation_mode '{coordinates}' is not supported")
    return centred


def _extrapolate(
    g: GraphContext, data: Value, dim: int, size: Numbers, positions: Numbers, method: dict[str, Any]
) -> Value:
    """Replace pixels outside of the input by a number."""
    last = arithmetic(g, "Sub", size, 1.0)
    low, high = arithmetic(g, "Less", positions, 0.0), arithmetic(g, "Greater", positions, last)
    is_outside = g.constant(arithmetic(g, "Or", low, high))
    trailing_axes = list(range(1, known_rank(g, data) - dim))
    is_outside = g.op("Unsqueeze", is_outside, axes=trailing_axes) if trailing_axes else is_outside
    filler = g.constant(method["extrapolation_value"], g.dtype(data) or DataType.FLOAT)
    return g.call("composed::where", condition=is_outside, self=filler, other=data)


@onnx_symbolic("before13::Resize")
def read_resize_11(
    g: GraphContext,
    X: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    **attributes: Any,
) -> Value:
    """Reads Resize of a file at opset 11 or 12, the only ones with `tf_half_pixel_for_nn`."""
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
    """Reads Upsample of a file below opset 10, and writes Resize, which replaces it from opset 10 on.

    Coordinates are scaled from the corner.
    """
    if scales is None:
        scales = [1.0, 1.0, height_scale or 1.0, width_scale or 1.0]
    scales_value = g.constant(scales, DataType.FLOAT)
    mode = "linear" if mode in ("linear", "bilinear") else "nearest"
    return g.op_of_any_data(
        "Resize",
        X,
        None,
        scales_value,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@onnx_symbolic("before11::Resize")
def read_resize_10(g: GraphContext, X: Value, scales: Value, mode: str = "nearest") -> Value:
    """Reads Resize of a file at opset 10, and writes it as a newer opset has it.

    Its meaning is that of Upsample, but axes that shrink take the nearest pixel above, as in onnxruntime.
    """
    array = g.constant_value(scales)
    if mode != "nearest" or (array is not None and np.all(array >= 1)):
        return upsample(g, X, scales, mode)
    if array is None:
        unit_scales = g.constant(np.ones(known_rank(g, X), dtype=np.float32))
        X, scales = upsample(g, X, g.op("Max", scales, unit_scales)), g.op("Min", scales, unit_scales)
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

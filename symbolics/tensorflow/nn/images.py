"""Colours of images, crops, and projective transformations."""

from __future__ import annotations

import dataclasses

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, product
from ...compositions.special.formulas import Formula
from .layout import ranked
from .sizes import listed_sizes


def _channel(g: GraphContext, images: Value, index: int) -> Formula:
    """One channel of the last axis, which keeps size 1."""
    rank = g.rank(images)
    return Formula(g, g.op("Gather", images, [index], axis=-1 if rank is None else rank - 1))


def _joined(g: GraphContext, *parts: Formula) -> Value:
    rank = g.rank(parts[0].value)
    return g.op("Concat", *(part.value for part in parts), axis=-1 if rank is None else rank - 1)


def _hue_saturation_value(g: GraphContext, images: Value) -> tuple[Formula, Formula, Formula]:
    """Convert RGB to hue, saturation and value; hues are from 0 to 1."""
    red, green, blue = (_channel(g, images, index) for index in range(3))
    value = red.op("Max", green, blue)
    span = value - red.op("Min", green, blue)
    zero = red * 0.0
    saturation = (value > 0.0).chosen(span / value, zero)
    sixth = (span * 6.0).op("Reciprocal")
    hue = value.equals(green).chosen(sixth * (blue - red) + 2.0 / 6.0, sixth * (red - green) + 4.0 / 6.0)
    hue = value.equals(red).chosen(sixth * (green - blue), hue)
    hue = (span > 0.0).chosen(hue, zero)
    return (hue < 0.0).chosen(hue + 1.0, hue), saturation, value


def _clipped(part: Formula) -> Formula:
    return part.call("aten::clamp", 0.0, 1.0)


def _red_green_blue(g: GraphContext, hue: Formula, saturation: Formula, value: Formula) -> Value:
    sixths = hue * 6.0
    shares = (
        _clipped(abs(sixths - 3.0) - 1.0),
        _clipped(2.0 - abs(sixths - 2.0)),
        _clipped(2.0 - abs(sixths - 4.0)),
    )
    rest = 1.0 - saturation
    return _joined(g, *((rest + saturation * share) * value for share in shares))


@onnx_symbolic("tf::RGBToHSV")
def rgb_to_hsv(g: GraphContext, images: Value) -> Value:
    return _joined(g, *_hue_saturation_value(g, images))


@onnx_symbolic("tf::HSVToRGB")
def hsv_to_rgb(g: GraphContext, images: Value) -> Value:
    return _red_green_blue(g, *(_channel(g, images, index) for index in range(3)))


def _in_single(g: GraphContext, images: Value) -> tuple[Value, DataType]:
    """Cast images to FLOAT, the type in which TensorFlow computes, and return the type of the result."""
    dtype = g.dtype(images) or DataType.FLOAT
    return g.cast(images, DataType.FLOAT), dtype


@onnx_symbolic("tf::AdjustHue")
def adjust_hue(g: GraphContext, images: Value, delta: Value) -> Value:
    """Hues wrap around."""
    wide, dtype = _in_single(g, images)
    hue, saturation, value = _hue_saturation_value(g, wide)
    turned = hue + Formula(g, delta)
    turned = turned - turned.floor()
    return g.cast(_red_green_blue(g, turned, saturation, value), dtype)


@onnx_symbolic("tf::AdjustSaturation")
def adjust_saturation(g: GraphContext, images: Value, scale: Value) -> Value:
    wide, dtype = _in_single(g, images)
    hue, saturation, value = _hue_saturation_value(g, wide)
    return g.cast(_red_green_blue(g, hue, _clipped(saturation * Formula(g, scale)), value), dtype)


@onnx_symbolic("tf::AdjustContrastv2")
def adjust_contrast_v2(g: GraphContext, images: Value, contrast_factor: Value) -> Value:
    """Scale the difference from the mean of each channel of each image."""
    wide, dtype = _in_single(g, images)
    rank = g.rank(images)
    axes = [-3, -2] if rank is None else [rank - 3, rank - 2]
    mean = g.op("ReduceMean", wide, axes=axes, keepdims=1)
    return g.cast(g.op("Add", g.op("Mul", g.op("Sub", wide, mean), contrast_factor), mean), dtype)


@dataclasses.dataclass(frozen=True)
class _Pixels:
    """Images as a list of pixels, `[N * height * width, channels]`, to be gathered by index."""

    g: GraphContext
    flat: Value
    height: Value
    width: Value
    area: Value

    @classmethod
    def of(cls, g: GraphContext, images: Value) -> _Pixels:
        ranked(g, images, 4)
        height, width, channels = (g.size(images, axis) for axis in (1, 2, 3))
        flat = g.op("Reshape", images, [-1, channels])
        area = g.constant(product(g, [height, width]), DataType.INT64)
        return cls(g, flat, g.constant(height, DataType.INT64), g.constant(width, DataType.INT64), area)

    def taken(self, image: Value, row: Value, column: Value) -> Formula:
        """The pixels at broadcast INT64 rows and columns, as FLOAT; others are clamped to the edges."""
        g = self.g
        row, column = (_clamp_positions(g, *each) for each in ((row, self.height), (column, self.width)))
        place = g.op("Add", g.op("Mul", image, self.area), g.op("Add", g.op("Mul", row, self.width), column))
        return Formula(g, g.cast(g.op("Gather", self.flat, place, axis=0), DataType.FLOAT))


def _clamp_positions(g: GraphContext, positions: Value, size: Value) -> Value:
    last = g.op("Sub", size, 1)
    positions = g.op("Where", g.op("Less", positions, 0), 0, positions)
    return g.op("Where", g.op("Greater", positions, last), last, positions)


def _to_int64(places: Formula) -> Value:
    return places.cast(DataType.INT64).value


def _boxed(g: GraphContext, low: Formula, high: Formula, size: Value, count: Size) -> Formula:
    """The coordinates of the pixels of crops along one dimension, `[boxes, count]`."""
    last = Formula(g, g.cast(g.op("Sub", size, 1), DataType.FLOAT))
    numbers = Formula(g, g.cast(g.constant(g.call("sym::range", start=0, end=count)), DataType.FLOAT))
    if isinstance(count, int) and count == 1:
        return (low + high) * 0.5 * last + numbers
    gaps = Formula(g, g.cast(g.constant(compute(g, "sub", count, 1)), DataType.FLOAT))
    spread = low * last + numbers * ((high - low) * last / gaps)
    if isinstance(count, int):
        return spread
    return (gaps < 1.0).chosen((low + high) * 0.5 * last + numbers, spread)


@onnx_symbolic("tf::CropAndResize")
def crop_and_resize(
    g: GraphContext,
    image: Value,
    boxes: Value,
    box_ind: Value,
    crop_size: Value,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Value:
    """Crops of images, `[boxes, height, width, channels]`, FLOAT.

    Semantics: tensorflow/core/kernels/image/crop_and_resize_op.cc.
    """
    pixels = _Pixels.of(g, image)
    counts = listed_sizes(g, crop_size, 2)
    edges = [Formula(g, g.op("Gather", boxes, [index], axis=1)) for index in range(4)]
    rows = _boxed(g, edges[0], edges[2], pixels.height, counts[0])
    columns = _boxed(g, edges[1], edges[3], pixels.width, counts[1])
    rows, columns = (
        Formula(g, g.op("Unsqueeze", part.value, axes=[axis])) for part, axis in ((rows, 2), (columns, 1))
    )
    number = g.op("Unsqueeze", g.cast(box_ind, DataType.INT64), axes=[1, 2])
    if method == "nearest":
        result = pixels.taken(number, _to_int64((rows + 0.5).floor()), _to_int64((columns + 0.5).floor()))
    elif method == "bilinear":
        result = _bilinear(pixels, number, rows, columns)
    else:
        raise g.refuse(f"method '{method}' is not supported")
    outside = None
    for part, size in ((rows, pixels.height), (columns, pixels.width)):
        last = Formula(g, g.cast(g.op("Sub", size, 1), DataType.FLOAT))
        away = (part < 0.0) | (part > last)
        outside = away if outside is None else outside | away
    assert outside is not None
    mask = g.op("Unsqueeze", outside.value, axes=[3])
    return g.op("Where", mask, float(extrapolation_value), result.value)


def _bilinear(pixels: _Pixels, image: Value, rows: Formula, columns: Formula) -> Formula:
    """Bilinear interpolation between the four pixels around each coordinate."""
    g, (top, left) = pixels.g, (rows.floor(), columns.floor())
    down, right = (
        Formula(g, g.op("Unsqueeze", part.value, axes=[3])) for part in (rows - top, columns - left)
    )
    upper, lower = (
        _interpolated(
            pixels.taken(image, _to_int64(row), _to_int64(left)),
            pixels.taken(image, _to_int64(row), _to_int64(left + 1.0)),
            right,
        )
        for row in (top, top + 1.0)
    )
    return _interpolated(upper, lower, down)


def _interpolated(first: Formula, second: Formula, share: Formula) -> Formula:
    return first + (second - first) * share


@onnx_symbolic("tf::ImageProjectiveTransformV3")
def image_projective_transform_v3(
    g: GraphContext,
    images: Value,
    transforms: Value,
    output_shape: Value,
    fill_value: Value | float,
    interpolation: str,
    fill_mode: str = "CONSTANT",
) -> Value:
    """Each pixel of the result is read at its projected coordinate.

    Semantics: tensorflow/core/kernels/image/image_ops.h.
    """
    pixels = _Pixels.of(g, images)
    counts = listed_sizes(g, output_shape, 2)
    parts = [
        Formula(g, g.op("Unsqueeze", g.op("Gather", transforms, [index], axis=1), axes=[2]))
        for index in range(8)
    ]
    y, x = (
        Formula(g, g.op("Reshape", g.cast(_numbers(g, count), DataType.FLOAT), shape))
        for count, shape in zip(counts, ([1, -1, 1], [1, 1, -1]), strict=True)
    )
    depth = parts[6] * x + parts[7] * y + 1.0
    column = (parts[0] * x + parts[1] * y + parts[2]) / depth
    row = (parts[3] * x + parts[4] * y + parts[5]) / depth
    column = _mapped(g, column, pixels.width, fill_mode)
    row = _mapped(g, row, pixels.height, fill_mode)
    batch = g.op("Reshape", _numbers(g, g.size(images, 0)), [-1, 1, 1])
    fill = Formula(g, g.constant(fill_value, DataType.FLOAT))

    def read(row: Formula, column: Formula) -> Formula:
        inside = None
        for part, size in ((row, pixels.height), (column, pixels.width)):
            bound = Formula(g, g.cast(size, DataType.FLOAT))
            within = (part > -1.0) & (part < bound)
            inside = within if inside is None else inside & within
        assert inside is not None
        mask = Formula(g, g.op("Unsqueeze", inside.value, axes=[3]))
        return mask.chosen(pixels.taken(batch, _to_int64(_finite(row)), _to_int64(_finite(column))), fill)

    if interpolation == "NEAREST":
        result = read(_rounded(row), _rounded(column))
    elif interpolation == "BILINEAR":
        top, left = row.floor(), column.floor()
        down, right = (
            Formula(g, g.op("Unsqueeze", part.value, axes=[3])) for part in (row - top, column - left)
        )
        upper, lower = (
            read(each, left) * (1.0 - right) + read(each, left + 1.0) * right for each in (top, top + 1.0)
        )
        result = upper * (1.0 - down) + lower * down
    else:
        raise g.refuse(f"interpolation '{interpolation}' is not supported")
    vanishing = Formula(g, g.op("Unsqueeze", depth.equals(0.0).value, axes=[3]))
    result = vanishing.chosen(fill, result)
    dtype = g.dtype(images)
    return result.value if dtype is None else g.cast(result.value, dtype)


@onnx_symbolic("tf::ImageProjectiveTransformV2")
def image_projective_transform_v2(
    g: GraphContext,
    images: Value,
    transforms: Value,
    output_shape: Value,
    interpolation: str,
    fill_mode: str = "CONSTANT",
) -> Value:
    return g.call(
        "tf::ImageProjectiveTransformV3",
        images,
        transforms,
        output_shape,
        0.0,
        interpolation,
        fill_mode,
    )


def _numbers(g: GraphContext, count: Size) -> Value:
    return g.constant(g.call("sym::range", start=0, end=count))


def _rounded(place: Formula) -> Formula:
    """Round halves away from zero."""
    return (place < 0.0).chosen((place - 0.5).op("Ceil"), (place + 0.5).floor())


def _finite(place: Formula) -> Formula:
    """Clamp coordinates, so that they can be cast to integers."""
    return place.call("aten::clamp", -(2.0**30), 2.0**30)


def _mapped(g: GraphContext, place: Formula, size: Value, fill_mode: str) -> Formula:
    """Map coordinates outside of the image into it by the fill mode."""
    if fill_mode == "CONSTANT":
        return place
    length = Formula(g, g.cast(size, DataType.FLOAT))
    last = length - 1.0
    if fill_mode == "REFLECT":
        place = _reflected(place, length)
    elif fill_mode == "WRAP":
        place = _wrapped(place, length)
    elif fill_mode != "NEAREST":
        raise g.refuse(f"fill_mode '{fill_mode}' is not supported")
    return place.op("Max", 0.0).op("Min", last)


def _reflected(place: Formula, length: Formula) -> Formula:
    """`d c b a | a b c d | d c b a`."""
    double = length * 2.0
    below = place + double * (-place / double).floor()
    below = (below < -length).chosen(below + double, -below - 1.0)
    above = place - double * (place / double).floor()
    above = (above < length).chosen(above, double - above - 1.0)
    return (place < 0.0).chosen(below, (place > length - 1.0).chosen(above, place))


def _wrapped(place: Formula, length: Formula) -> Formula:
    """`a b c d | a b c d | a b c d`, with a period of one pixel less, as TensorFlow has it."""
    gaps = (length - 1.0).op("Max", 1.0)
    below = place + length * ((-place / gaps).floor() + 1.0)
    above = place - length * (place / gaps).floor()
    return (place < 0.0).chosen(below, (place > length - 1.0).chosen(above, place))

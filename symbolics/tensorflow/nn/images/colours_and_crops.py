"""Colours of images, crops, and projective transformations."""

from __future__ import annotations

import dataclasses

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.operator_tables import register_variant
from ....compositions.size_arithmetic import Size, compute, product
from ....compositions.special.formulas import Formula, round_half_away
from ..._common import range_vector
from ..layout import set_rank
from ..size_operands import list_sizes


def _channel(g: GraphContext, images: Value, index: int) -> Formula:
    """One channel; the last axis stays, with size 1."""
    rank = g.rank(images)
    # Gather takes a negative axis only from opset 11.
    return Formula(g, g.op("Gather", images, [index], axis=-1 if rank is None else rank - 1))


def _concat_channels(g: GraphContext, *channels: Formula) -> Value:
    rank = g.rank(channels[0].value)
    return g.op("Concat", *(channel.value for channel in channels), axis=-1 if rank is None else rank - 1)


def _hue_saturation_value(g: GraphContext, images: Value) -> tuple[Formula, Formula, Formula]:
    """Convert RGB to hue, saturation and value; hues are from 0 to 1."""
    red, green, blue = (_channel(g, images, index) for index in range(3))
    value = red.op("Max", green, blue)
    span = value - red.op("Min", green, blue)
    zero = red * 0.0
    # Black has no saturation, and gray no hue: both are 0, where a division by zero gives NaN.
    saturation = (value > 0.0).chosen(span / value, zero)
    # A hue is a fraction of a turn; each of the six sectors of the colour wheel is a sixth.
    sixth = (span * 6.0).op("Reciprocal")
    hue = value.equals(green).chosen(sixth * (blue - red) + 2.0 / 6.0, sixth * (red - green) + 4.0 / 6.0)
    hue = value.equals(red).chosen(sixth * (green - blue), hue)
    hue = (span > 0.0).chosen(hue, zero)
    return (hue < 0.0).chosen(hue + 1.0, hue), saturation, value


def _with_channel(values: Formula) -> Formula:
    """Add an axis for the channels to values at pixels."""
    return Formula(values.g, values.g.op("Unsqueeze", values.value, axes=[3]))


def _clip_to_unit(values: Formula) -> Formula:
    return values.call("aten::clamp", 0.0, 1.0)


def _red_green_blue(g: GraphContext, hue: Formula, saturation: Formula, value: Formula) -> Value:
    sixths = hue * 6.0
    shares = (
        _clip_to_unit(abs(sixths - 3.0) - 1.0),
        _clip_to_unit(2.0 - abs(sixths - 2.0)),
        _clip_to_unit(2.0 - abs(sixths - 4.0)),
    )
    gray = 1.0 - saturation
    return _concat_channels(g, *((gray + saturation * share) * value for share in shares))


@onnx_symbolic("tf::RGBToHSV")
def rgb_to_hsv(g: GraphContext, images: Value) -> Value:
    return _concat_channels(g, *_hue_saturation_value(g, images))


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
    float_images, dtype = _in_single(g, images)
    hue, saturation, value = _hue_saturation_value(g, float_images)
    turned = hue + Formula(g, delta)
    turned = turned - turned.floor()
    return g.cast(_red_green_blue(g, turned, saturation, value), dtype)


@onnx_symbolic("tf::AdjustSaturation")
def adjust_saturation(g: GraphContext, images: Value, scale: Value) -> Value:
    float_images, dtype = _in_single(g, images)
    hue, saturation, value = _hue_saturation_value(g, float_images)
    return g.cast(_red_green_blue(g, hue, _clip_to_unit(saturation * Formula(g, scale)), value), dtype)


@onnx_symbolic("tf::AdjustContrastv2")
def adjust_contrast_v2(g: GraphContext, images: Value, contrast_factor: Value) -> Value:
    """Scale the difference from the mean of each channel of each image."""
    float_images, dtype = _in_single(g, images)
    rank = g.rank(images)
    # The images may have any number of leading dimensions.
    axes = [-3, -2] if rank is None else [rank - 3, rank - 2]
    mean = g.op("ReduceMean", float_images, axes=axes, keepdims=1)
    return g.cast(g.op("Add", g.op("Mul", g.op("Sub", float_images, mean), contrast_factor), mean), dtype)


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
        set_rank(g, images, 4)
        height, width, channels = (g.size(images, axis) for axis in (1, 2, 3))
        flat = g.op("Reshape", images, [-1, channels])
        area = g.constant(product(g, [height, width]), DataType.INT64)
        return cls(g, flat, g.constant(height, DataType.INT64), g.constant(width, DataType.INT64), area)

    def gather(self, image: Value, row: Value, column: Value) -> Formula:
        """The pixels at INT64 rows and columns, as FLOAT; coordinates outside are clamped to the edges."""
        g = self.g
        row, column = (
            _clamp_positions(g, *positions_and_size)
            for positions_and_size in ((row, self.height), (column, self.width))
        )
        flat_index = g.op(
            "Add", g.op("Mul", image, self.area), g.op("Add", g.op("Mul", row, self.width), column)
        )
        return Formula(g, g.cast(g.op("Gather", self.flat, flat_index, axis=0), DataType.FLOAT))


def _clamp_positions(g: GraphContext, positions: Value, size: Value) -> Value:
    last = g.op("Sub", size, 1)
    positions = g.op("Where", g.op("Less", positions, 0), 0, positions)
    return g.op("Where", g.op("Greater", positions, last), last, positions)


def _to_int64(coordinates: Formula) -> Value:
    return coordinates.cast(DataType.INT64).value


def crop_coordinates(g: GraphContext, low: Formula, high: Formula, size: Value, count: Size) -> Formula:
    """The coordinates of the pixels of crops along one dimension, `[boxes, count]`."""
    last = Formula(g, g.cast(g.op("Sub", size, 1), DataType.FLOAT))
    numbers = Formula(g, g.cast(range_vector(g, count), DataType.FLOAT))
    # A single pixel is the centre of the box.
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
    counts = list_sizes(g, crop_size, 2)
    edges = [Formula(g, g.op("Gather", boxes, [index], axis=1)) for index in range(4)]
    rows = crop_coordinates(g, edges[0], edges[2], pixels.height, counts[0])
    columns = crop_coordinates(g, edges[1], edges[3], pixels.width, counts[1])
    rows, columns = (
        Formula(g, g.op("Unsqueeze", coordinates.value, axes=[axis]))
        for coordinates, axis in ((rows, 2), (columns, 1))
    )
    image_index = g.op("Unsqueeze", g.cast(box_ind, DataType.INT64), axes=[1, 2])
    if method == "nearest":
        result = pixels.gather(
            image_index, _to_int64(round_half_away(rows)), _to_int64(round_half_away(columns))
        )
    elif method == "bilinear":
        result = _bilinear(pixels, image_index, rows, columns)
    else:
        raise g.refuse(f"method '{method}' is not supported")
    outside = None
    for coordinates, size in ((rows, pixels.height), (columns, pixels.width)):
        last = Formula(g, g.cast(g.op("Sub", size, 1), DataType.FLOAT))
        is_beyond = (coordinates < 0.0) | (coordinates > last)
        outside = is_beyond if outside is None else outside | is_beyond
    assert outside is not None
    return g.op("Where", _with_channel(outside).value, float(extrapolation_value), result.value)


def _bilinear(pixels: _Pixels, image: Value, rows: Formula, columns: Formula) -> Formula:
    """Bilinear interpolation between the four pixels around each coordinate."""
    top_row, left_column = rows.floor(), columns.floor()
    down, right = map(_with_channel, (rows - top_row, columns - left_column))
    upper, lower = (
        _interpolate(
            pixels.gather(image, _to_int64(row), _to_int64(left_column)),
            pixels.gather(image, _to_int64(row), _to_int64(left_column + 1.0)),
            right,
        )
        for row in (top_row, top_row + 1.0)
    )
    return _interpolate(upper, lower, down)


def _interpolate(first: Formula, second: Formula, share: Formula) -> Formula:
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
    """Read each pixel of the result at its projected coordinates.

    Semantics: tensorflow/core/kernels/image/image_ops.h.
    """
    pixels = _Pixels.of(g, images)
    counts = list_sizes(g, output_shape, 2)
    coefficients = [
        Formula(g, g.op("Unsqueeze", g.op("Gather", transforms, [index], axis=1), axes=[2]))
        for index in range(8)
    ]
    y, x = (
        Formula(g, g.op("Reshape", g.cast(range_vector(g, count), DataType.FLOAT), shape))
        for count, shape in zip(counts, ([1, -1, 1], [1, 1, -1]), strict=True)
    )
    depth = coefficients[6] * x + coefficients[7] * y + 1.0
    column = (coefficients[0] * x + coefficients[1] * y + coefficients[2]) / depth
    row = (coefficients[3] * x + coefficients[4] * y + coefficients[5]) / depth
    column = _apply_fill_mode(g, column, pixels.width, fill_mode)
    row = _apply_fill_mode(g, row, pixels.height, fill_mode)
    batch = g.op("Reshape", range_vector(g, g.size(images, 0)), [-1, 1, 1])
    fill = Formula(g, g.constant(fill_value, DataType.FLOAT))

    def read_pixels(row: Formula, column: Formula) -> Formula:
        inside = None
        for offsets, size in ((row, pixels.height), (column, pixels.width)):
            bound = Formula(g, g.cast(size, DataType.FLOAT))
            # Between -1 and 0 a pixel is still interpolated with the edge of the image.
            is_within = (offsets > -1.0) & (offsets < bound)
            inside = is_within if inside is None else inside & is_within
        assert inside is not None
        return _with_channel(inside).chosen(
            pixels.gather(batch, _to_int64(_clamp_to_castable(row)), _to_int64(_clamp_to_castable(column))),
            fill,
        )

    if interpolation == "NEAREST":
        result = read_pixels(round_half_away(row), round_half_away(column))
    elif interpolation == "BILINEAR":
        top_row, left_column = row.floor(), column.floor()
        down, right = map(_with_channel, (row - top_row, column - left_column))
        upper, lower = (
            read_pixels(edge_row, left_column) * (1.0 - right)
            + read_pixels(edge_row, left_column + 1.0) * right
            for edge_row in (top_row, top_row + 1.0)
        )
        result = upper * (1.0 - down) + lower * down
    else:
        raise g.refuse(f"interpolation '{interpolation}' is not supported")
    # The projection divides by zero there.
    result = _with_channel(depth.equals(0.0)).chosen(fill, result)
    dtype = g.dtype(images)
    return result.value if dtype is None else g.cast(result.value, dtype)


register_variant("tf::ImageProjectiveTransformV2", image_projective_transform_v3, fill_value=0.0)


def _clamp_to_castable(coordinates: Formula) -> Formula:
    """Clamp coordinates, so that they can be cast to integers."""
    return coordinates.call("aten::clamp", -(2.0**30), 2.0**30)


def _apply_fill_mode(g: GraphContext, coordinates: Formula, size: Value, fill_mode: str) -> Formula:
    """Map coordinates outside of the image into the image, by the fill mode."""
    if fill_mode == "CONSTANT":
        return coordinates
    length = Formula(g, g.cast(size, DataType.FLOAT))
    last = length - 1.0
    if fill_mode == "REFLECT":
        coordinates = _reflect(coordinates, length)
    elif fill_mode == "WRAP":
        coordinates = _wrap(coordinates, length)
    elif fill_mode != "NEAREST":
        raise g.refuse(f"fill_mode '{fill_mode}' is not supported")
    return coordinates.op("Max", 0.0).op("Min", last)


def _reflect(coordinates: Formula, length: Formula) -> Formula:
    """`d c b a | a b c d | d c b a`."""
    double = length * 2.0
    below = coordinates + double * (-coordinates / double).floor()
    below = (below < -length).chosen(below + double, -below - 1.0)
    above = coordinates - double * (coordinates / double).floor()
    above = (above < length).chosen(above, double - above - 1.0)
    return (coordinates < 0.0).chosen(below, (coordinates > length - 1.0).chosen(above, coordinates))


def _wrap(coordinates: Formula, length: Formula) -> Formula:
    """`a b c d | a b c d | a b c d`; the period is one pixel less than the length, as in TensorFlow."""
    gaps = (length - 1.0).op("Max", 1.0)
    below = coordinates + length * ((-coordinates / gaps).floor() + 1.0)
    above = coordinates - length * (coordinates / gaps).floor()
    return (coordinates < 0.0).chosen(below, (coordinates > length - 1.0).chosen(above, coordinates))

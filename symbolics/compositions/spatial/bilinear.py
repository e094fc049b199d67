"""Bilinear samples of images at computed points, one gather for each of the four neighbours."""

import dataclasses
import functools

from ....registration import DataType, GraphContext, Value
from ..size_arithmetic import Size
from .resampling import clamp_positions


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """The two pixels around each point along one axis.

    Attributes:
        positions: the lower and the upper pixel, INT64, inside of the image.
        weights: their weights, of the image's element type.
    """

    positions: tuple[Value, Value]
    weights: tuple[Value, Value]


def neighbours_in_zeros(g: GraphContext, coordinates: Value, size: Size) -> Neighbours:
    """The neighbours along an axis whose image is surrounded by zeros; pixel 0 is at 0."""
    low = g.op("Floor", coordinates)
    fraction = g.op("Sub", coordinates, low)
    low_pixel = g.cast(low, DataType.INT64)
    positions, weights = [], []
    for pixel, weight in ((low_pixel, g.op("Sub", 1.0, fraction)), (g.op("Add", low_pixel, 1), fraction)):
        position = clamp_positions(g, pixel, size)
        positions.append(position)
        # A clamped position is a pixel outside of the image.
        weights.append(g.op("Where", g.op("Equal", pixel, position), weight, 0.0))
    return Neighbours((positions[0], positions[1]), (weights[0], weights[1]))


def neighbours_of_regions(g: GraphContext, coordinates: Value, size: Size) -> Neighbours:
    """The neighbours along an axis as RoiAlign has them.

    Points up to one pixel outside of the image count as points on its edge; points beyond that are zero.
    """
    dtype = g.dtype(coordinates) or DataType.FLOAT
    length = g.cast(g.constant(size), dtype)
    outside = g.op("Or", g.op("Less", coordinates, -1.0), g.op("Greater", coordinates, length))
    last = g.op("Sub", length, 1.0)
    clamped = g.op("Where", g.op("Less", coordinates, 0.0), 0.0, coordinates)
    clamped = g.op("Where", g.op("Greater", clamped, last), last, clamped)
    low = g.op("Floor", clamped)
    fraction = g.op("Sub", clamped, low)
    low_pixel = clamp_positions(g, g.cast(low, DataType.INT64), size)
    high_pixel = clamp_positions(g, g.op("Add", low_pixel, 1), size)
    weights = [g.op("Where", outside, 0.0, w) for w in (g.op("Sub", 1.0, fraction), fraction)]
    return Neighbours((low_pixel, high_pixel), (weights[0], weights[1]))


def sample_pixels(
    g: GraphContext, pixels: Value, first: Value, y: Neighbours, x: Neighbours, width: Size, rank: int
) -> Value:
    """Weighted sums of the four pixels around each point.

    Args:
        pixels: the channels of every pixel of every image, `[images * height * width, channels]`.
        first: the row of each point's image in `pixels`, INT64.
        y: the neighbours along the height; `first`, `y` and `x` broadcast to the points' shape.
        x: the neighbours along the width.
        width: the width of the images.
        rank: the rank of the points' shape.

    Returns:
        `[*points, channels]`
    """
    products = []
    for row, row_weight in zip(y.positions, y.weights, strict=True):
        first_of_row = g.op("Add", first, g.op("Mul", row, g.constant(width)))
        for column, column_weight in zip(x.positions, x.weights, strict=True):
            neighbour = g.op("Gather", pixels, g.op("Add", first_of_row, column), axis=0)
            weight = g.op("Unsqueeze", g.op("Mul", row_weight, column_weight), axes=[rank])
            products.append(g.op("Mul", neighbour, weight))
    return functools.reduce(lambda a, b: g.op("Add", a, b), products)

"""Regions of images, divided into bins along both axes: the points of a bin, and their reduction."""

import numpy as np

from ....registration import DataType, GraphContext, Value
from ..size_arithmetic import Size


def bin_points(
    g: GraphContext, start: Value, length: Value, bins: int, ratio: int
) -> tuple[Value, Size, Value | None]:
    """The points at which each bin of a region is sampled along one axis.

    Args:
        start: where each region starts, `[regions, 1]`.
        length: the length of each region, `[regions, 1]`.
        bins: the number of bins.
        ratio: the number of points in a bin; if it is not positive, as many as the bin has pixels.

    Returns:
        Their coordinates, `[regions, bins, points]`; the largest number in a bin; and the number in a bin of
        each region, `[regions, 1, 1]`, if `ratio` does not say it.
    """
    start, length = (g.op("Unsqueeze", column, axes=[2]) for column in (start, length))
    dtype = g.dtype(start) or DataType.FLOAT
    size = g.op("Div", length, float(bins))
    most: Size = ratio
    bin_counts = None
    step = g.op("Div", size, float(ratio)) if ratio > 0 else None
    if step is None:
        bin_counts = g.op("Ceil", size)
        counts_and_one = g.op("Concat", g.op("Reshape", bin_counts, [-1]), g.constant([1.0], dtype), axis=0)
        most = g.cast(g.op("ReduceMax", counts_and_one, axes=[0], keepdims=0), DataType.INT64)
        step = g.op("Div", size, g.op("Max", bin_counts, g.constant(1.0, dtype)))
    numbers = g.cast(g.call("sym::range", start=0, end=most), dtype)
    within = g.op("Mul", g.op("Add", numbers, 0.5), step)
    g.reserve(bins)
    begins = g.op("Mul", g.constant(np.arange(bins).reshape(-1, 1), dtype), size)
    return g.op("Add", g.op("Add", start, begins), within), most, bin_counts


def pool_bins(
    g: GraphContext,
    values: Value,
    mode: str,
    rows: Value | None,
    columns: Value | None,
    high: Size,
    wide: Size,
) -> Value:
    """Reduce the points of each bin, from `[regions, height, points, width, points, channels]`."""
    if rows is None or columns is None:
        return g.op("ReduceMax" if mode == "max" else "ReduceMean", values, axes=[2, 4], keepdims=0)
    dtype = g.dtype(rows) or DataType.FLOAT
    counts = []
    for count, most, axes in ((rows, high, [3, 4, 5]), (columns, wide, [1, 2, 5])):
        number = g.cast(g.call("sym::range", start=0, end=most), dtype)
        counts.append(g.op("Unsqueeze", g.op("Less", number, count), axes=axes))
    inside = g.op("And", *counts)
    if mode == "max":
        # A bin without points is 0, not minus infinity.
        lowest = g.op("Where", inside, values, g.constant(-np.inf, dtype))
        highest = g.op("ReduceMax", lowest, axes=[2, 4], keepdims=0)
        return g.op("Where", g.op("Equal", highest, -np.inf), 0.0, highest)
    total = g.op("ReduceSum", g.op("Where", inside, values, g.constant(0.0, dtype)), axes=[2, 4], keepdims=0)
    number = g.op("Max", g.op("Mul", rows, columns), g.constant(1.0, dtype))
    return g.op("Div", total, g.op("Unsqueeze", number, axes=[3]))

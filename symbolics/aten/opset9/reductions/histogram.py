"""Counts of values: bincount, histc, histograms of one or several dimensions.

The choice of bins follows aten/src/ATen/native/cpu/HistogramKernel.cpp.
"""

import numpy as np

from .....registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic
from ....compositions.size_arithmetic import Size, compute, known_rank, product

_COMPARED = 64
"""Up to this many bins, each value is compared with the numbers of all bins. The comparisons take memory for
each value and bin, and less time than a Loop over the values, which below opset 16 counts without them."""


def _count_bins(g: GraphContext, bins: Value, count: Size, weight: Value | None, dtype: DataType) -> Value:
    """The number of positions in each of `count` bins, or the sum of their weights."""
    weights = g.call("aten::full_like", bins, 1, dtype) if weight is None else weight
    zeros = g.call("composed::full", size=[count], fill_value=0, dtype=dtype)
    return g.call("composed::accumulate_rows", zeros, bins, weights)


@onnx_symbolic("aten::bincount")
def bincount(g: GraphContext, self: Value, weights: Value | None = None, minlength: int | Value = 0) -> Value:
    """The number of bins follows from the largest value."""
    values = g.cast(self, DataType.INT64)
    # Without values, -1 serves as the largest one.
    padded = g.op("Concat", values, g.constant([-1]), axis=0)
    largest = g.op("ReduceMax", padded, axes=[0], keepdims=0)
    count = g.call("sym::max", a=g.op("Add", largest, 1), b=minlength)
    dtype = DataType.INT64 if weights is None else DataType.DOUBLE
    if weights is not None and g.dtype(weights) == DataType.FLOAT:
        dtype = DataType.FLOAT
    weight = None if weights is None else g.cast(weights, dtype)
    return _count_bins(g, values, count, weight, dtype)


def _is_empty(g: GraphContext, self: Value) -> bool:
    return 0 in (g.shape(self) or ())


def _limits(
    g: GraphContext, self: Value, requested_range: tuple[Number, Number] | None, margin: float, empty: bool
) -> tuple[Value, Value]:
    """The outer edges: the given ones, else the extremes of the data, or 0 and 1 without data."""
    dtype = g.dtype(self) or DataType.FLOAT
    if requested_range is not None:
        low, high = g.constant(float(requested_range[0]), dtype), g.constant(float(requested_range[1]), dtype)
    elif empty:
        low, high = g.constant(0.0, dtype), g.constant(1.0, dtype)
    else:
        low, high = (g.op(op, self, keepdims=0) for op in ("ReduceMin", "ReduceMax"))
    # An empty range is widened on both sides, so that bins have a width.
    is_empty = g.call("aten::eq", low, high)
    below, above = g.op("Sub", low, margin), g.op("Add", high, margin)
    return g.op("Where", is_empty, below, low), g.op("Where", is_empty, above, high)


def _edges(g: GraphContext, low: Value, high: Value, bins: int) -> Value:
    """Equidistant edges, computed from both ends to the middle, as in linspace."""
    dtype = low.dtype or DataType.FLOAT
    g.reserve(bins + 1)
    numbers = np.arange(bins + 1)
    step = g.op("Div", g.op("Sub", high, low), float(bins))
    rising = g.op("Add", low, g.op("Mul", step, g.constant(numbers.astype(float), dtype)))
    falling = g.op("Sub", high, g.op("Mul", step, g.constant((bins - numbers).astype(float), dtype)))
    return g.op("Where", g.constant(numbers < (bins + 1) // 2), rising, falling)


def _bin_of_values(g: GraphContext, values: Value, edges: Value) -> Value:
    """The bin of each value; -1 for NaN and for values outside of the edges.

    A bin includes its left edge; the last bin also includes its right edge.
    """
    count = compute(g, "sub", g.size(edges, 0), 1)
    reached = g.call("aten::le", g.op("Unsqueeze", edges, axes=[0]), g.op("Unsqueeze", values, axes=[1]))
    bin_index = g.op("Sub", g.op("ReduceSum", g.cast(reached, DataType.INT64), axes=[1], keepdims=0), 1)
    last = g.op("Gather", edges, count, axis=0)
    # The right edge of the last bin would begin another bin.
    bin_index = g.op("Sub", bin_index, g.cast(g.call("aten::eq", values, last), DataType.INT64))
    outside = g.op("Not", g.call("aten::le", values, last))
    return g.op("Where", outside, g.constant(-1), bin_index)


def _histogram(
    g: GraphContext, points: Value, edges: list[Value], weight: Value | None, density: bool
) -> Value:
    """The counts of points, one in each row, in a grid of bins."""
    counts = [compute(g, "sub", g.size(edge, 0), 1) for edge in edges]
    total = product(g, counts)
    outside: Value | None = None
    position: Value | None = None
    for dimension, edge in enumerate(edges):
        values = g.op("Gather", points, dimension, axis=1)
        bin_index = _bin_of_values(g, values, edge)
        is_outside = g.op("Less", bin_index, 0)
        outside = is_outside if outside is None else g.op("Or", outside, is_outside)
        position = (
            bin_index
            if position is None
            else g.op("Add", g.op("Mul", position, counts[dimension]), bin_index)
        )
    dtype = g.dtype(points) or DataType.FLOAT
    # An additional bin, which is cut off, takes the points outside.
    position = g.op("Where", outside, g.constant(total, DataType.INT64), position)
    weights = None if weight is None else g.op("Reshape", weight, [-1])
    histogram_values = _count_bins(g, position, compute(g, "add", total, 1), weights, dtype)
    histogram_values = g.call("aten::slice", self=histogram_values, dim=0, start=0, end=total)
    histogram_values = g.call("aten::reshape", histogram_values, counts)
    if density:
        histogram_values = g.op("Div", histogram_values, g.op("ReduceSum", histogram_values, keepdims=0))
        for dimension, edge in enumerate(edges):
            width = g.call("aten::diff", edge)
            after = len(edges) - dimension - 1
            width = g.op("Unsqueeze", width, axes=list(range(1, after + 1))) if after else width
            histogram_values = g.op("Div", histogram_values, width)
    return histogram_values


def _whole_numbers(values: Value) -> Value | None:
    """The integers that values are, perhaps before a Cast to FLOAT; None if they may have fractions."""
    node = values.producer()
    is_cast = node is not None and node.op_type == "Cast" and values.dtype == DataType.FLOAT
    source = node.inputs[0] if node is not None and is_cast else values
    # An UINT64 may be a negative INT64.
    return source if source is not None and source.dtype in dtypes.INTEGERS - {DataType.UINT64} else None


@onnx_symbolic("aten::histc")
def histc(g: GraphContext, self: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    """Bins by the distance from the lower edge; values outside, and NaN, are not counted."""
    flat = g.op("Reshape", self, [-1]) if g.rank(self) != 1 else self
    dtype_of_values = g.dtype(self) or DataType.FLOAT
    numbers = _whole_numbers(flat)
    # Each whole number is the only one of its bin, so no division has to find the bin.
    if numbers is not None and 0 <= min == int(min) and bins == max - min + 1 <= _COMPARED:
        bin_numbers = g.constant(np.arange(int(min), int(max) + 1))
        column = g.op("Unsqueeze", g.cast(numbers, DataType.INT64), axes=[1])
        summed = dtype_of_values if dtype_of_values in (DataType.FLOAT, DataType.DOUBLE) else DataType.INT64
        is_in_bin = g.cast(g.op("Equal", column, bin_numbers), summed)
        return g.cast(g.op("ReduceSum", is_in_bin, axes=[0], keepdims=0), dtype_of_values)
    values = g.cast(flat, DataType.FLOAT) if dtype_of_values in dtypes.HALVES else flat
    if dtype_of_values not in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16):
        values = g.cast(flat, DataType.DOUBLE)
    low, high = _limits(g, values, None if min == max else (min, max), 1.0, _is_empty(g, self))
    distance = g.op("Mul", g.op("Sub", values, low), float(bins))
    bin_number = g.op("Floor", g.op("Div", distance, g.op("Sub", high, low)))
    inside = g.op("And", g.call("aten::ge", values, low), g.call("aten::le", values, high))
    dtype = values.dtype or DataType.FLOAT
    if bins <= _COMPARED:
        # A value outside, or NaN, is equal to the number of no bin.
        position = g.op("Where", inside, g.call("aten::clamp_max", bin_number, bins - 1), -1.0)
        numbers = g.constant(np.arange(bins).astype(float), dtype)
        is_in_bin = g.call("aten::eq", g.op("Unsqueeze", position, axes=[1]), numbers)
        counts = g.op("ReduceSum", g.cast(is_in_bin, dtype), axes=[0], keepdims=0)
        return g.cast(counts, dtype_of_values)
    bin_number = g.call("aten::clamp_max", g.op("Where", inside, bin_number, 0.0), bins - 1)
    position = g.op("Where", inside, g.cast(bin_number, DataType.INT64), g.constant(bins))
    counts = _count_bins(g, position, bins + 1, None, dtype)
    return g.cast(g.call("aten::slice", self=counts, dim=0, start=0, end=bins), dtype_of_values)


@onnx_symbolic("aten::histogram.bin_ct")
def histogram(
    g: GraphContext,
    self: Value,
    bins: int = 100,
    range: list[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Value]:
    requested_range = None if range is None else (range[0], range[1])
    edges = _edges(g, *_limits(g, self, requested_range, 0.5, _is_empty(g, self)), bins)
    return [_histogram(g, g.op("Reshape", self, [-1, 1]), [edges], weight, density), edges]


@onnx_symbolic("aten::histogram.bins_tensor")
def histogram_between(
    g: GraphContext, self: Value, bins: Value, weight: Value | None = None, density: bool = False
) -> list[Value]:
    return [_histogram(g, g.op("Reshape", self, [-1, 1]), [bins], weight, density), bins]


def _grid(
    g: GraphContext, self: Value, bins: list[int], range: list[float] | None
) -> tuple[Value, list[Value]]:
    """The points as rows, and the edges of every dimension."""
    points = g.op("Reshape", self, [-1, len(bins)]) if known_rank(g, self) != 2 else self
    edges = []
    for dimension, count in enumerate(bins):
        requested_range = None if range is None else (range[2 * dimension], range[2 * dimension + 1])
        column = g.op("Gather", points, dimension, axis=1)
        edges.append(_edges(g, *_limits(g, column, requested_range, 0.5, _is_empty(g, self)), count))
    return points, edges


@onnx_symbolic("aten::histogramdd")
def histogramdd(
    g: GraphContext,
    self: Value,
    bins: list[int] | list[Value] | int,
    range: list[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> list[Value]:
    if isinstance(bins, int):
        width = g.size(self, -1)
        if isinstance(width, Value):
            raise g.refuse("the number of dimensions of a histogram must be known")
        bins = [bins] * width
    if bins and isinstance(bins[0], Value):
        edges: list[Value] = [edge for edge in bins if isinstance(edge, Value)]
        points = g.op("Reshape", self, [-1, len(edges)]) if known_rank(g, self) != 2 else self
    else:
        points, edges = _grid(g, self, [count for count in bins if isinstance(count, int)], range)
    return [_histogram(g, points, edges, weight, density), *edges]

"""GridSample: the operator for images from 16 and for volumes from 20; else composed of gathered pixels.

Coordinates and weights: aten/src/ATen/native/GridSampler.h.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.size_arithmetic import Size, compute, product, sizes_of
from ...compositions.spatial.resampling import cubic_weights
from ..support import below

_TODAY_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_FORMER_MODES = {new: old for old, new in _TODAY_MODES.items()}


class _Sampler:
    """One call: an input [N, C, S...] and the pixel coordinates [N, 1, P] of its spatial dimensions.

    `dtype` is the element type of coordinates: the input's, unless the input holds integers.
    """

    def __init__(self, g: GraphContext, input: Value, padding: str, align_corners: bool, dtype: DataType):
        self.g = g
        self.padding = padding
        self.align_corners = align_corners
        batch, self.channels, *self.sizes = sizes_of(g, input)
        self.dtype = dtype
        self.flat = g.call("aten::reshape", input, [batch, self.channels, product(g, self.sizes)])
        self.batch = batch

    def number(self, size: Size) -> Value:
        return self.g.constant(size, self.dtype)

    def pixels(self, grid: Value, dim: int) -> Value:
        """Convert coordinates from [-1, 1] to pixels of a spatial dimension."""
        g, size = self.g, self.number(self.sizes[dim])
        if self.align_corners:
            return g.op("Mul", g.op("Div", g.op("Add", grid, 1.0), 2.0), g.op("Sub", size, 1.0))
        return g.op("Div", g.op("Sub", g.op("Mul", g.op("Add", grid, 1.0), size), 1.0), 2.0)

    def pad_coordinate(self, coordinate: Value, dim: int) -> Value:
        """Move a coordinate into the image as the padding mode says; `zeros` leaves it unchanged."""
        if self.padding == "zeros":
            return coordinate
        g = self.g
        if self.padding == "reflection":
            coordinate = self._reflect(coordinate, dim)
        last = g.op("Sub", self.number(self.sizes[dim]), 1.0)
        bounded = g.call("aten::maximum", coordinate, self.number(0))
        bounded = g.call("aten::minimum", bounded, last)
        # As in ATen, NaN as a coordinate means the first pixel.
        return g.op("Where", g.call("aten::isnan", coordinate), 0.0, bounded)

    def _reflect(self, coordinate: Value, dim: int) -> Value:
        """Reflect a coordinate at the centres of the outermost pixels, or at their outer edges."""
        g, size = self.g, self.sizes[dim]
        low = 0.0 if self.align_corners else -0.5
        span = compute(g, "sub", size, 1) if self.align_corners else size
        if isinstance(span, int) and span == 0:
            return g.op("Mul", coordinate, 0.0)
        length = self.number(span)
        distance = g.op("Abs", g.op("Sub", coordinate, low))
        turns = g.op("Floor", g.op("Div", distance, length))
        extra = g.op("Sub", distance, g.op("Mul", turns, length))
        half = g.op("Mul", turns, 0.5)
        # After an even number of reflections the coordinate runs forwards again.
        is_even = g.call("aten::eq", g.op("Floor", half), half)
        forwards, backwards = g.op("Add", extra, low), g.op("Add", g.op("Sub", length, extra), low)
        mirrored = g.op("Where", is_even, forwards, backwards)
        return g.op("Where", g.call("aten::eq", length, 0.0), 0.0, mirrored)

    def gather_pixels(self, coordinates: Sequence[Value]) -> Value:
        """Gather the pixels at whole coordinates; pixels outside of the image are 0."""
        g = self.g
        inside: list[Value] = []
        position: Value | None = None
        for dim, coordinate in enumerate(coordinates):
            last = g.op("Sub", self.number(self.sizes[dim]), 1.0)
            inside += [g.call("aten::ge", coordinate, 0.0), g.call("aten::le", coordinate, last)]
            bounded = g.call("aten::minimum", g.call("aten::maximum", coordinate, self.number(0)), last)
            bounded = g.op("Where", g.call("aten::isnan", coordinate), 0.0, bounded)
            index_of_dim = g.cast(bounded, DataType.INT64)
            position = (
                index_of_dim
                if position is None
                else g.op("Add", g.op("Mul", position, self.sizes[dim]), index_of_dim)
            )
        assert position is not None
        count = g.size(position, 2)
        # GatherElements reads each channel by its own index, so the index is repeated for all channels.
        index = g.call("aten::expand", self=position, size=[self.batch, self.channels, count])
        pixels = g.op("GatherElements", self.flat, index, axis=2)
        valid = functools.reduce(lambda a, b: g.op("And", a, b), inside)
        return g.op("Where", valid, pixels, g.constant(0, g.dtype(pixels)))

    def nearest(self, coordinates: Sequence[Value]) -> Value:
        return self.gather_pixels([self.g.call("aten::round", coordinate) for coordinate in coordinates])

    def linear(self, coordinates: Sequence[Value]) -> Value:
        """The 2, 4 or 8 pixels around, weighted by their distance."""
        g = self.g
        corners = []
        for coordinate in coordinates:
            before = g.op("Floor", coordinate)
            fraction = g.op("Sub", coordinate, before)
            after = g.op("Add", before, 1.0)
            corners.append([(before, g.op("Sub", 1.0, fraction)), (after, fraction)])
        return self._sum_weighted(corners, lambda pixels: pixels)

    def cubic(self, coordinates: Sequence[Value]) -> Value:
        """The 16 pixels around; padding applies to each of them."""
        g = self.g
        taps = []
        for coordinate in coordinates:
            before = g.op("Floor", coordinate)
            weights = cubic_weights(g, g.op("Sub", coordinate, before))
            taps.append([(g.op("Add", before, float(i - 1)), weight) for i, weight in enumerate(weights)])
        return self._sum_weighted(
            taps, lambda pixels: [self.pad_coordinate(p, dim) for dim, p in enumerate(pixels)]
        )

    def _sum_weighted(
        self, taps: Sequence[Sequence[tuple[Value, Value]]], pad: Callable[[list[Value]], list[Value]]
    ) -> Value:
        g = self.g
        total: Value | None = None
        for corner in itertools.product(*taps):
            weight = functools.reduce(lambda a, b: g.op("Mul", a, b), [weight for _, weight in corner])
            term = g.op("Mul", self.gather_pixels(pad([coordinate for coordinate, _ in corner])), weight)
            total = term if total is None else g.op("Add", total, term)
        assert total is not None
        return total


def _sample(
    g: GraphContext, X: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> Value:
    """The grid `[N, O..., D]` holds the coordinates of the last spatial dimension first."""
    dtype, rank = g.dtype(X), g.rank(X)
    if rank is None:
        raise g.refuse("the rank of its input is unknown", first_opset=20)
    if dtype in dtypes.HALVES:
        # Rounding a coordinate to 10 bits may move it by a pixel.
        X, grid = g.cast(X, DataType.FLOAT), g.cast(grid, DataType.FLOAT)
        return g.cast(_sample(g, X, grid, mode, padding_mode, align_corners), dtype)
    dimensions = rank - 2
    if dtype is None or dtype in dtypes.FLOATS:
        coordinate_dtype: DataType = dtype or DataType.FLOAT
        grid = g.cast(grid, coordinate_dtype)
    elif mode == "nearest":
        coordinate_dtype = g.dtype(grid) or DataType.FLOAT
    else:
        raise g.refuse(f"interpolation of {dtype.name} is not supported")
    if mode not in ("linear", "nearest", "cubic"):
        raise g.refuse(f"its mode '{mode}' does not exist")
    sampler = _Sampler(g, X, padding_mode, align_corners, coordinate_dtype)
    output = sizes_of(g, grid)[1:-1]
    points = g.call("aten::reshape", grid, [sampler.batch, 1, product(g, output), dimensions])
    coordinates = [
        sampler.pixels(g.op("Gather", points, dimensions - 1 - dim, axis=3), dim) for dim in range(dimensions)
    ]
    if mode != "cubic":
        coordinates = [sampler.pad_coordinate(coordinate, dim) for dim, coordinate in enumerate(coordinates)]
    sampled = {"linear": sampler.linear, "nearest": sampler.nearest, "cubic": sampler.cubic}[mode](
        coordinates
    )
    return g.call("aten::reshape", sampled, [sampler.batch, sampler.channels, *output])


@onnx_symbolic("before20::GridSample")
def grid_sample_16(
    g: GraphContext, X: Value, grid: Value, mode: str = "bilinear", **attributes: Any
) -> Value:
    """Below 20 its modes have other names."""
    result: Value = g.op("GridSample", X, grid, mode=_TODAY_MODES.get(mode, mode), **attributes)
    return result


@below("GridSample", 20)
def grid_sample(
    g: GraphContext,
    X: Value,
    grid: Value,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Value:
    """Below 20."""
    if g.rank(X) != 4 or not g.has("GridSample"):
        return _sample(g, X, grid, mode, padding_mode, bool(align_corners))
    mode = _FORMER_MODES.get(mode, mode)
    return g.op("GridSample", X, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@onnx_symbolic("form::GridSample.samples")
def grid_sample_of_gathered_pixels(
    g: GraphContext,
    X: Value,
    grid: Value,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Value:
    """Weighted sums of gathered pixels."""
    return _sample(g, X, grid, _TODAY_MODES.get(mode, mode), padding_mode, bool(align_corners))

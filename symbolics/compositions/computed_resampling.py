"""Interpolation between sizes that are computed: indices and weights are made where the model runs.

Semantics: those of `resampling`, whose formulas these are.
"""

from ...registration import DataType, GraphContext, Value
from .resampling import Axis, cubic_weights, weighed
from .sizes import Size, compute


class _Place:
    """One spatial axis of an interpolation in a graph.

    Attributes:
        size: of the input.
        output: size of the output.
        step: input pixels per output pixel.
    """

    def __init__(self, g: GraphContext, size: Size, axis: Axis, align_corners: bool, dtype: DataType):
        self.size = size
        self.dtype = dtype
        self.output: Size = _output(g, size, axis)
        self.step = self._step(g, axis, align_corners)

    def _step(self, g: GraphContext, axis: Axis, align_corners: bool) -> Value:
        if align_corners:
            steps = compute(g, "sub", self.output, 1)
            step = self.number(g, compute(g, "sub", self.size, 1))
            step = g.op("Div", step, self.number(g, compute(g, "max", steps, 1)))
            return g.op("Where", g.op("Greater", g.constant(steps), 0), step, 0.0)
        if axis.scale is not None:
            step = g.constant(1.0 / axis.scale, self.dtype)
            for multiple in axis.multiples:
                here = g.op("Equal", g.constant(self.output), compute(g, "mul", self.size, multiple))
                step = g.op("Where", here, 1.0 / multiple, step)
            return step
        return g.op("Div", self.number(g, self.size), self.number(g, self.output))

    def number(self, g: GraphContext, size: Size) -> Value:
        return g.cast(g.constant(size, DataType.INT64), self.dtype)

    def pixels(self, g: GraphContext) -> Value:
        return g.cast(g.call("sym::range", start=0, end=self.output), self.dtype)

    def within(self, g: GraphContext, positions: Value) -> Value:
        """INT64 positions, those outside moved to the edges."""
        last = g.constant(compute(g, "sub", self.size, 1), DataType.INT64)
        positions = g.op("Where", g.op("Less", positions, 0), 0, positions)
        return g.op("Where", g.op("Greater", positions, last), last, positions)


def _output(g: GraphContext, size: Size, axis: Axis) -> Size:
    if axis.count is not None:
        return axis.count
    if axis.output is not None:
        return axis.output
    if axis.scale is None:
        raise g.refuse("an interpolation has neither sizes nor factors")
    return g.call("sym::trunc", a=g.call("sym::mul", a=size, b=axis.scale))


def _nearest(g: GraphContext, place: _Place, exact: bool) -> Value:
    pixels = place.pixels(g)
    pixels = g.op("Add", pixels, 0.5) if exact else pixels
    return place.within(g, g.cast(g.op("Floor", g.op("Mul", pixels, place.step)), DataType.INT64))


def _plain_weights(
    g: GraphContext, place: _Place, cubic: bool, align_corners: bool
) -> tuple[list[Value], list[Value]]:
    """The two or four pixels around each place, and their weights, `[output]` each."""
    pixels = place.pixels(g)
    if align_corners:
        places = g.op("Mul", pixels, place.step)
    else:
        places = g.op("Sub", g.op("Mul", g.op("Add", pixels, 0.5), place.step), 0.5)
    if not cubic:
        places = g.call("aten::relu", places)
    first = g.op("Floor", places)
    fraction = g.op("Sub", places, first)
    weights = cubic_weights(g, fraction) if cubic else [g.op("Sub", 1.0, fraction), fraction]
    whole = g.cast(first, DataType.INT64)
    start = -1 if cubic else 0
    taps = [place.within(g, g.op("Add", whole, start + i)) for i in range(len(weights))]
    return taps, weights


def _polynomial(g: GraphContext, x: Value, *coefficients: float) -> Value:
    result = g.op("Add", g.op("Mul", x, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        result = g.op("Add", g.op("Mul", result, x), coefficient)
    return result


def _antialiased_weights(g: GraphContext, place: _Place, cubic: bool) -> Value:
    """The filter at the distance of each pixel from each place, `[output, size]`; far away it is 0."""
    centres = g.op("Unsqueeze", g.op("Mul", g.op("Add", place.pixels(g), 0.5), place.step), axes=[1])
    numbers = g.cast(g.call("sym::range", start=0, end=place.size), place.dtype)
    is_smaller = g.op("Greater", place.step, 1.0)
    width = g.op("Where", is_smaller, place.step, g.constant(1.0, place.dtype))
    x = g.op("Abs", g.op("Div", g.op("Sub", g.op("Add", numbers, 0.5), centres), width))
    if cubic:
        far = g.op("Where", g.op("Less", x, 2.0), _polynomial(g, x, -0.5, 2.5, -4.0, 2.0), 0.0)
        weights = g.op("Where", g.op("Less", x, 1.0), _polynomial(g, x, 1.5, -2.5, 0.0, 1.0), far)
    else:
        weights = g.call("aten::relu", g.op("Sub", 1.0, x))
    total = g.op("ReduceSum", weights, axes=[1], keepdims=1)
    return g.op("Div", weights, g.op("Where", g.op("Greater", total, 0.0), total, 1.0))


def weighted_along(g: GraphContext, input: Value, weights: Value, position: int, rank: int) -> Value:
    """Weighted sums `[..., output, ...]` along one dimension, by weights `[output, size]`."""
    if position == rank - 2:
        return g.op("MatMul", weights, input)
    if position == rank - 1:
        return g.op("MatMul", input, g.op("Transpose", weights, perm=[1, 0]))
    perm = list(range(rank))
    perm[position], perm[-2] = perm[-2], perm[position]
    return g.op("Transpose", g.op("MatMul", weights, g.op("Transpose", input, perm=perm)), perm=perm)


def by_computation(
    g: GraphContext, input: Value, spatial: list[Axis], mode: str, align_corners: bool, antialias: bool
) -> Value:
    """By computed indices and weights, one axis after the other."""
    rank, dtype = len(spatial) + 2, g.dtype(input) or DataType.FLOAT
    is_nearest, cubic = mode.startswith("nearest"), mode == "cubic"
    wide = DataType.DOUBLE if dtype == DataType.DOUBLE and not is_nearest else DataType.FLOAT
    for position, axis in enumerate(spatial, start=2):
        place = _Place(g, g.size(input, position), axis, align_corners, wide)
        if is_nearest:
            input = g.op("Gather", input, _nearest(g, place, mode == "nearest_exact"), axis=position)
            continue
        if antialias:
            filters = g.cast(_antialiased_weights(g, place, cubic), dtype)
            input = weighted_along(g, input, filters, position, rank)
        else:
            taps, weights = _plain_weights(g, place, cubic, align_corners)
            weights = [g.cast(weight, dtype) for weight in weights]
            input = weighed(g, input, taps, weights, position, rank)
    return input

"""Resampling along one dimension: nearest pixels at computed coordinates, or weighted sums of pixels.

Numbers are numpy arrays if they are computed from known numbers only, else values of the graph.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....registration import DataType, GraphContext, Value
from ..size_arithmetic import Size, compute, known_rank

_EXACT_FLOATS, _BLOCK = 2**24, 2**18

Numbers = Any
"""Numbers as numpy or Python has them, or a value."""

_NUMPY: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Div": lambda a, b: np.divide(a, b) if np.result_type(a, b).kind == "f" else np.floor_divide(a, b),
    "Equal": np.equal,
    "Floor": np.floor,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
}


@dataclasses.dataclass(frozen=True)
class Method:
    """The interpolation method, as the attributes of Resize.

    Attributes:
        nearest: how a coordinate is rounded to a pixel.
        cubic: the coefficient `a` of the cubic filter.
        exclude_outside: whether pixels outside of the input have no weight; else they are the outermost ones.
        antialias: whether the filter widens as the result shrinks.
    """

    mode: str
    nearest: str = "floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def arithmetic(g: GraphContext, op_type: str, *operands: Numbers) -> Numbers:
    """Apply an operator to numbers; fold it if all of them are known."""
    if not any(isinstance(operand, Value) for operand in operands):
        with np.errstate(all="ignore"):
            return _NUMPY[op_type](*operands)
    return g.op(
        op_type, *(operand.item() if isinstance(operand, np.generic) else operand for operand in operands)
    )


def number(g: GraphContext, size: Size, dtype: DataType) -> Numbers:
    """A size as a number of an element type."""
    return g.cast(size, dtype) if isinstance(size, Value) else dtype.numpy().type(size)


def position_blocks(count: int) -> Iterator[np.ndarray] | None:
    """The numbers from 0 to `count - 1` as FLOAT, in blocks; None if FLOAT does not hold all of them."""
    if count > _EXACT_FLOATS:
        return None
    starts = range(0, count, _BLOCK)
    return (np.arange(start, min(start + _BLOCK, count)).astype(np.float32) for start in starts)


def pixels(g: GraphContext, count: Size, dtype: DataType) -> Numbers:
    """The numbers from 0 to `count - 1`; not a constant for a file from an untrusted source."""
    if isinstance(count, int) and g.is_free(count):
        return np.arange(count).astype(dtype.numpy())
    return g.cast(g.call("sym::range", start=0, end=count), dtype)


def column(g: GraphContext, numbers: Numbers) -> Numbers:
    """One-dimensional numbers as `[count, 1]`."""
    return g.op("Unsqueeze", numbers, axes=[1]) if isinstance(numbers, Value) else numbers[:, None]


def clip_negative(g: GraphContext, numbers: Numbers) -> Numbers:
    """Floats, with negative ones replaced by 0."""
    return g.call("aten::relu", numbers) if isinstance(numbers, Value) else np.maximum(numbers, 0)


def _to_int64(g: GraphContext, numbers: Numbers) -> Numbers:
    return g.cast(numbers, DataType.INT64) if isinstance(numbers, Value) else numbers.astype(np.int64)


def clamp_positions(g: GraphContext, positions: Numbers, size: Size) -> Numbers:
    """INT64 positions, clamped to the dimension."""
    if isinstance(size, int) and not isinstance(positions, Value):
        return np.clip(positions, 0, size - 1)
    positions = g.constant(positions)
    last = g.constant(compute(g, "sub", size, 1), DataType.INT64)
    positions = g.op("Where", g.op("Less", positions, 0), 0, positions)
    # Two Wheres, because Clip takes no INT64 before opset 12.
    return g.op("Where", g.op("Greater", positions, last), last, positions)


def resample(
    g: GraphContext, data: Value, axis: int, size: Size, coordinates: Numbers, step: Numbers, method: Method
) -> Value:
    """Resample one dimension at coordinates.

    Args:
        size: the dimension's size.
        coordinates: coordinates in the input, `[output]`; pixel 0 is at 0.
        step: input pixels per output pixel, for antialiasing.
    """
    if method.mode == "nearest":
        nearest = clamp_positions(g, _to_int64(g, _round_coordinates(g, coordinates, method.nearest)), size)
        is_identity = isinstance(nearest, np.ndarray) and _counts_to(nearest, size)
        return data if is_identity else g.op("Gather", data, nearest, axis=axis)
    if method.antialias:
        return _filter(g, data, axis, size, coordinates, step, method)
    return _interpolate(g, data, axis, size, coordinates, method)


def _round_coordinates(g: GraphContext, coordinates: Numbers, rounding: str) -> Numbers:
    if rounding == "round_prefer_ceil":
        return arithmetic(g, "Floor", arithmetic(g, "Add", coordinates, 0.5))
    if rounding == "round_prefer_floor":
        return arithmetic(g, "Ceil", arithmetic(g, "Sub", coordinates, 0.5))
    return arithmetic(g, {"floor": "Floor", "ceil": "Ceil"}[rounding], coordinates)


def _polynomial(g: GraphContext, x: Numbers, *coefficients: float) -> Numbers:
    result = arithmetic(g, "Add", arithmetic(g, "Mul", x, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        result = arithmetic(g, "Add", arithmetic(g, "Mul", result, x), coefficient)
    return result


def _cubic(a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The polynomials of the cubic filter at distances up to 1, and from 1 to 2."""
    return (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)


def cubic_weights(g: GraphContext, t: Numbers, a: float = -0.75) -> list[Numbers]:
    """The weights of the pixels at -1, 0, 1 and 2 for fractions between 0 and 1."""
    near, far = _cubic(a)
    complement = arithmetic(g, "Sub", 1.0, t)
    return [
        _polynomial(g, arithmetic(g, "Add", t, 1.0), *far),
        _polynomial(g, t, *near),
        _polynomial(g, complement, *near),
        _polynomial(g, arithmetic(g, "Add", complement, 1.0), *far),
    ]


def _interpolate(
    g: GraphContext, data: Value, axis: int, size: Size, coordinates: Numbers, method: Method
) -> Value:
    """Weighted sums of the two or four pixels around each coordinate.

    Gathers the pixels, because a product with a matrix would spread NaN and infinity to all results.
    """
    first = arithmetic(g, "Floor", coordinates)
    t = arithmetic(g, "Sub", coordinates, first)
    cubic = method.mode == "cubic"
    weights = cubic_weights(g, t, method.cubic) if cubic else [arithmetic(g, "Sub", 1.0, t), t]
    first_pixel, taps = _to_int64(g, first), []
    for i, weight in enumerate(weights):
        position = arithmetic(g, "Add", first_pixel, i - 1 if cubic else i)
        taps.append(clamp_positions(g, position, size))
        if method.exclude_outside:
            weights[i] = arithmetic(g, "Where", arithmetic(g, "Equal", position, taps[i]), weight, 0.0)
    if method.exclude_outside:
        total = functools.reduce(lambda a, b: arithmetic(g, "Add", a, b), weights)
        weights = [arithmetic(g, "Div", weight, total) for weight in weights]
    if _is_copy(size, taps, weights):
        return data
    trailing_axes = list(range(1, known_rank(g, data) - axis))
    products = []
    for tap, weight in zip(taps, weights, strict=True):
        factor = g.constant(weight, g.dtype(data) or DataType.FLOAT)
        factor = g.op("Unsqueeze", factor, axes=trailing_axes) if trailing_axes else factor
        products.append(g.op("Mul", g.op("Gather", data, tap, axis=axis), factor))
    return functools.reduce(lambda a, b: g.op("Add", a, b), products)


def _is_copy(size: Size, taps: list[Numbers], weights: list[Numbers]) -> bool:
    """Whether the resampling is known to be the identity."""
    if isinstance(size, Value) or any(isinstance(numbers, Value) for numbers in (*taps, *weights)):
        return False
    if not all(np.isin(weight, (0, 1)).all() for weight in weights):
        return False
    sources = np.asarray(sum(tap * weight for tap, weight in zip(taps, weights, strict=True)))
    return _counts_to(sources, size)


def _counts_to(positions: np.ndarray, size: Size) -> bool:
    """Whether positions are the numbers from 0 to `size - 1`. A file may declare any size."""
    return positions.shape == (size,) and np.array_equal(positions, np.arange(len(positions)))


def _filter(
    g: GraphContext, data: Value, axis: int, size: Size, coordinates: Numbers, step: Numbers, method: Method
) -> Value:
    """Weighted sums of all pixels, with a filter whose width is the downscaling factor."""
    dtype = g.dtype(coordinates) if isinstance(coordinates, Value) else DataType.from_numpy(coordinates.dtype)
    assert dtype is not None
    if method.exclude_outside:
        numbers = pixels(g, size, dtype)
    else:
        # Pixels beyond the edges repeat the outermost ones: two sizes on either side hold every filter's
        # reach.
        positions = pixels(g, compute(g, "mul", size, 5), DataType.INT64)
        positions = arithmetic(g, "Sub", positions, compute(g, "mul", size, 2))
        data = g.op("Gather", data, clamp_positions(g, positions, size), axis=axis)
        numbers = (
            g.cast(positions, dtype) if isinstance(positions, Value) else positions.astype(dtype.numpy())
        )
    is_constant = not any(isinstance(operand, Value) for operand in (numbers, coordinates, step))
    if is_constant and g.is_free(len(numbers) * len(coordinates)):
        coordinates = column(g, coordinates)
    else:
        coordinates = column(g, g.constant(coordinates, dtype))
    width = arithmetic(g, "Where", arithmetic(g, "Greater", step, 1.0), step, dtype.numpy().type(1))
    x = arithmetic(g, "Abs", arithmetic(g, "Div", arithmetic(g, "Sub", numbers, coordinates), width))
    if method.mode == "cubic":
        near, far = (_polynomial(g, x, *coefficients) for coefficients in _cubic(method.cubic))
        far = arithmetic(g, "Where", arithmetic(g, "Less", x, 2.0), far, 0.0)
        weights = arithmetic(g, "Where", arithmetic(g, "Less", x, 1.0), near, far)
    else:
        weights = clip_negative(g, arithmetic(g, "Sub", 1.0, x))
    if isinstance(weights, Value):
        total = g.op("ReduceSum", weights, axes=[1], keepdims=1)
    else:
        total = weights.sum(axis=1, keepdims=True)
    # A filter that covers no pixel has weights of 0, and not 0 / 0.
    total = arithmetic(g, "Where", arithmetic(g, "Greater", total, 0.0), total, 1.0)
    weights = arithmetic(g, "Div", weights, total)
    is_square = isinstance(weights, np.ndarray) and weights.shape == (size, size)
    if is_square and np.array_equal(weights, np.eye(len(weights))):
        return data
    return apply_weights(g, data, weights, axis)


def apply_weights(g: GraphContext, data: Value, weights: Numbers, axis: int) -> Value:
    """Weighted sums along one dimension, by weights `[output, size]`; the last two need no transposition."""
    rank, dtype = known_rank(g, data), g.dtype(data) or DataType.FLOAT
    if axis == rank - 1:
        if isinstance(weights, Value):
            return g.op("MatMul", data, g.op("Transpose", g.cast(weights, dtype), perm=[1, 0]))
        return g.op("MatMul", data, g.constant(weights.T, dtype))
    matrix = g.constant(weights, dtype)
    if axis == rank - 2:
        return g.op("MatMul", matrix, data)
    perm = list(range(rank))
    perm[axis], perm[-2] = perm[-2], perm[axis]
    return g.op("Transpose", g.op("MatMul", matrix, g.op("Transpose", data, perm=perm)), perm=perm)

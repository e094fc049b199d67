"""Mean, deviation and scale, from which several operators compose their normalization."""

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes
from ...registration.functions.results import as_list


def along_channels(g: GraphContext, parameter: Value, input: Value) -> Value:
    """A vector over channels, shaped to broadcast over the input's spatial dimensions."""
    spatial = (g.rank(input) or 2) - 2
    return g.op("Unsqueeze", parameter, axes=list(range(1, spatial + 1))) if spatial > 0 else parameter


def affine(g: GraphContext, input: Value, weight: Value | None, bias: Value | None) -> Value:
    """`input * weight + bias`, each omitted if it is None."""
    if weight is not None:
        input = g.op("Mul", input, weight)
    return input if bias is None else g.op("Add", input, bias)


def affine_of_channels(
    g: GraphContext, normalised: Value, weight: Value | None, bias: Value | None, input: Value
) -> Value:
    """`affine` with a weight and a bias for each channel of the input."""
    parameters = (None if p is None else along_channels(g, p, input) for p in (weight, bias))
    return affine(g, normalised, *parameters)


def square(g: GraphContext, value: Value) -> Value:
    """Pow, which fusions look for; not in DOUBLE, where onnxruntime's fusion would lose `eps`."""
    return g.op("Mul", value, value) if g.dtype(value) == DataType.DOUBLE else g.op("Pow", value, 2.0)


def moments(g: GraphContext, input: Value, axes: list[int], eps: float) -> tuple[Value, Value, Value]:
    """The input minus its mean, the mean, and the biased standard deviation with `eps` in the root."""
    mean = g.op("ReduceMean", input, axes=axes, keepdims=1)
    centred = g.op("Sub", input, mean)
    variance = g.op("ReduceMean", square(g, centred), axes=axes, keepdims=1)
    return centred, mean, g.op("Sqrt", g.op("Add", variance, eps))


def widen_halves(
    g: GraphContext, input: Value, *parameters: Value | None
) -> tuple[Value, list[Value | None]]:
    """Input and parameters as FLOAT if one has half precision, because ATen's statistics are FLOAT then."""
    if not any(value is not None and g.dtype(value) in dtypes.HALVES for value in (input, *parameters)):
        return input, list(parameters)
    wide = [None if value is None else g.cast(value, DataType.FLOAT) for value in parameters]
    return g.cast(input, DataType.FLOAT), wide


def cast_like(g: GraphContext, value: Value, like: Value) -> Value:
    dtype = g.dtype(like)
    return value if dtype is None else g.cast(value, dtype)


def filled_vector(g: GraphContext, like: Value, count: int | list[int], number: float) -> Value:
    g.reserve(*as_list(count))
    return g.constant(np.full(count, number), g.dtype(like) or DataType.FLOAT)


def trailing_axes(g: GraphContext, input: Value, count: int) -> list[int]:
    """The last `count` axes, non-negative if the rank is known."""
    rank = g.rank(input)
    start = -count if rank is None else rank - count
    return list(range(start, start + count))


def group_channels(g: GraphContext, input: Value, num_groups: int) -> Value:
    return g.op("Reshape", input, [0, num_groups, -1])


def ungroup_channels(g: GraphContext, groups: Value, input: Value) -> Value:
    """A tensor of [N, groups, -1] in the shape of the input again."""
    rank = g.rank(input)
    if rank is None:
        return g.op("Reshape", groups, g.op("Shape", input))
    sizes = [g.size(input, axis) for axis in range(1, rank)]
    unknown = [axis for axis, size in enumerate(sizes) if isinstance(size, Value)]
    # Reshape infers one size by itself; with more of them the whole shape is read from the input.
    if len(unknown) == 1:
        sizes[unknown[0]] = -1
    return g.op("Reshape", groups, [0, *sizes] if len(unknown) < 2 else g.op("Shape", input))


def root_mean_square(
    g: GraphContext, input: Value, dimensions: int, weight: Value | None, eps: float
) -> tuple[Value, Value]:
    wide, (weight,) = widen_halves(g, input, weight)
    axes = trailing_axes(g, input, dimensions)
    mean_square = g.op("ReduceMean", square(g, wide), axes=axes, keepdims=1)
    root = g.op("Sqrt", g.op("Add", mean_square, eps))
    normalised = affine(g, g.op("Div", wide, root), weight, None)
    return cast_like(g, normalised, input), g.op("Reciprocal", root)

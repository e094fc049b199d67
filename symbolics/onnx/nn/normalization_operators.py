"""Normalization below the opsets at which its operators begin, or take a scale for each channel."""

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...compositions.moments import (
    affine,
    affine_of_channels,
    cast_like,
    filled_vector,
    group_channels,
    moments,
    root_mean_square,
    trailing_axes,
    ungroup_channels,
    widen_halves,
)
from ...compositions.size_arithmetic import known_rank
from ..support import below


def _is_all(g: GraphContext, value: Value | None, number: float) -> bool:
    """Whether every element of a parameter is known to equal `number`."""
    array = g.constant_value(value) if value is not None and g.is_foldable(value) else None
    return value is None or (array is not None and bool(np.all(array == number)))


def _dimensions(g: GraphContext, X: Value, axis: int) -> int:
    """The number of dimensions from an axis on."""
    return -axis if axis < 0 else known_rank(g, X) - axis


def _stash_dtype(g: GraphContext, X: Value, stash_type: int) -> DataType | None:
    """The `stash_type`, if it differs from the input's type and is not FLOAT for half precision."""
    wide, dtype = dtypes.element_type(stash_type), g.dtype(X)
    if wide not in dtypes.FLOATS:
        raise g.refuse(f"stash_type {wide.name} is not a type of floats")
    is_default = wide == DataType.FLOAT and dtype in dtypes.HALVES
    return None if dtype is None or dtype == wide or is_default else wide


@onnx_symbolic("composed::layer_norm")
def layer_norm(
    g: GraphContext, input: Value, dimensions: int, weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Composed in the form that runtimes fuse: (x - mean) / sqrt(mean((x - mean) ** 2) + eps)."""
    wide, (weight, bias) = widen_halves(g, input, weight, bias)
    centred, mean, deviation = moments(g, wide, trailing_axes(g, input, dimensions), eps)
    result = cast_like(g, affine(g, g.op("Div", centred, deviation), weight, bias), input)
    return [result, mean, deviation]


@onnx_symbolic("onnx::LayerNormalization")
def layer_normalization(
    g: GraphContext,
    X: Value,
    Scale: Value,
    B: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> list[Value]:
    """Below 17."""
    # A scale of ones would only add a multiplication.
    weight = None if _is_all(g, Scale, 1.0) else Scale
    wide, count = _stash_dtype(g, X, stash_type), _dimensions(g, X, axis)
    if wide is None:
        result, mean, root = g.call_outputs("composed::layer_norm", X, count, weight, B, epsilon)
    else:
        result, mean, root = g.call_outputs(
            "composed::layer_norm", g.cast(X, wide), count, None, None, epsilon
        )
        result = affine(g, cast_like(g, result, X), weight, B)
    return [result] if outputs == 1 else [result, mean, g.op("Div", 1.0, root)]


@onnx_symbolic("onnx::MeanVarianceNormalization", opset=8)
def mean_variance_normalization(g: GraphContext, X: Value, axes: list[int] | None = None) -> Value:
    """Below 9. Half precision is computed in float: the body of ONNX adds float constants to it."""
    dims = [0, 2, 3] if axes is None else axes
    wide, _ = widen_halves(g, X)
    distance = g.op("Sub", wide, g.op("ReduceMean", wide, axes=dims))
    variance = g.op("ReduceMean", g.op("Mul", distance, distance), axes=dims)
    return cast_like(g, g.op("Div", distance, g.op("Add", g.op("Sqrt", variance), 1e-9)), X)


@onnx_symbolic("onnx::RMSNormalization")
def rms_normalization(
    g: GraphContext, X: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Below 23."""
    weight = None if _is_all(g, scale, 1.0) else scale
    wide, count = _stash_dtype(g, X, stash_type), _dimensions(g, X, axis)
    if wide is None:
        return root_mean_square(g, X, count, weight, epsilon)[0]
    result = root_mean_square(g, g.cast(X, wide), count, None, epsilon)[0]
    return affine(g, cast_like(g, result, X), weight, None)


@onnx_symbolic("composed::group_norm")
def group_norm(
    g: GraphContext, input: Value, num_groups: int, weight: Value | None, bias: Value | None, eps: float
) -> Value:
    """InstanceNormalization with groups as channels."""
    if (weight is not None or bias is not None) and g.rank(input) is None:
        raise g.refuse("the rank of the input must be known")
    wide, (weight, bias) = widen_halves(g, input, weight, bias)
    groups = group_channels(g, wide, num_groups)
    if g.has_kernel("InstanceNormalization", wide):
        # The scale and bias of InstanceNormalization would be per group; the real ones are per channel.
        unit_scales, zeros = (filled_vector(g, wide, num_groups, number) for number in (1.0, 0.0))
        normalised = g.op("InstanceNormalization", groups, unit_scales, zeros, epsilon=eps)
    else:
        centred, _, deviation = moments(g, groups, [2], eps)
        normalised = g.op("Div", centred, deviation)
    restored = ungroup_channels(g, normalised, input)
    return cast_like(g, affine_of_channels(g, restored, weight, bias, input), input)


@below("GroupNormalization", 21)
def group_normalization(
    g: GraphContext,
    X: Value,
    scale: Value,
    bias: Value,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Below 21."""
    weight = None if _is_all(g, scale, 1.0) else scale
    shift = None if _is_all(g, bias, 0.0) else bias
    wide = _stash_dtype(g, X, stash_type)
    if wide is None:
        return g.call("composed::group_norm", X, num_groups, weight, shift, epsilon)
    result = g.call("composed::group_norm", g.cast(X, wide), num_groups, None, None, epsilon)
    return affine_of_channels(g, cast_like(g, result, X), weight, shift, X)

"""Normalization and Dropout, whose operators begin or change their meaning at an opset."""

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
from ...compositions.size_arithmetic import compute, known_rank, sizes_of
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


@onnx_symbolic("before21::GroupNormalization")
def group_normalization_18(
    g: GraphContext, X: Value, scale: Value, bias: Value, num_groups: int, epsilon: float = 1e-5
) -> Value:
    """Below 21 scale and bias are per group, since then per channel."""
    channels = compute(g, "floordiv", g.size(X, 1), num_groups)

    def of_channels(value: Value) -> Value:
        column = g.op("Unsqueeze", value, axes=[1])
        wide = g.op("Expand", column, g.stack([num_groups, channels]))
        return g.op("Reshape", wide, [-1])

    by_channel = of_channels(scale), of_channels(bias)
    return g.op("GroupNormalization", X, *by_channel, num_groups=num_groups, epsilon=epsilon)


@onnx_symbolic("onnx::BatchNormalization")
@below("BatchNormalization", 14, any_data=True)
def batch_normalization(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    input_mean: Value,
    input_var: Value,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> list[Value] | Value:
    """Below 14 training is composed from the statistics of the batch, which update the running ones."""
    if not training_mode:
        return g.op("BatchNormalization", X, scale, B, input_mean, input_var, epsilon=epsilon)
    rank = known_rank(g, X)
    axes = [0, *range(2, rank)]
    centre = g.op("ReduceMean", X, axes=axes, keepdims=1)
    centred = g.op("Sub", X, centre)
    spread = g.op("ReduceMean", g.op("Mul", centred, centred), axes=axes, keepdims=1)
    scaled = g.op("Div", centred, g.op("Sqrt", g.op("Add", spread, epsilon)))

    def column(value: Value) -> Value:
        return g.op("Reshape", value, [-1, *[1] * (rank - 2)]) if rank > 2 else value

    result = g.op("Add", g.op("Mul", scaled, column(scale)), column(B))
    running = []
    for old, new in ((input_mean, centre), (input_var, spread)):
        update = g.op("Mul", g.op("Reshape", new, [-1]), 1.0 - momentum)
        running.append(g.op("Add", g.op("Mul", old, momentum), update))
    return [result, *running]


@onnx_symbolic([f"before{opset}::BatchNormalization" for opset in (7, 9, 14)])
def batch_normalization_7(
    g: GraphContext,
    X: Value,
    scale: Value,
    B: Value,
    mean: Value,
    var: Value,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 1,
    outputs: int = 1,
) -> Value:
    """Below 14 additional outputs mean training, and later versions lack them; only the first one is given.

    Below 9 the statistics may be per feature. Below 7 an attribute selects training; if it is left out,
    runtimes use inference mode.
    """
    if outputs > 1 or not (is_test or spatial):
        raise g.refuse("training mode as defined below version 14 is not supported")
    if not is_test:
        # onnxruntime's kernel of version 14 divides by another deviation than its older one.
        options = {"epsilon": epsilon, "momentum": momentum, "training_mode": 1}
        result, *_ = g.call_outputs("onnx::BatchNormalization", X, scale, B, mean, var, **options)
        return result
    if spatial:
        return g.op("BatchNormalization", X, scale, B, mean, var, epsilon=epsilon)
    root = g.op("Sqrt", g.op("Add", var, epsilon))
    centred = g.op("Div", g.op("Sub", X, mean), root)
    return g.op("Add", g.op("Mul", centred, scale), B)


@onnx_symbolic("onnx::Dropout")
@below("Dropout", 12, any_data=True)
def dropout(
    g: GraphContext,
    data: Value,
    ratio: Value | float | None = None,
    training_mode: Value | bool | None = None,
    seed: int | None = None,
) -> list[Value]:
    """Below 12: here training and the ratio may be inputs."""
    trains = None if training_mode is None else g.constant(training_mode, DataType.BOOL)
    trains_array = None if trains is None else g.constant_value(trains)
    if trains is None or (trains_array is not None and not trains_array.item()):
        return [g.op("Identity", data), g.call("aten::ones_like", data, DataType.BOOL)]
    dtype = g.dtype(data) or DataType.FLOAT
    chance = g.constant(0.5 if ratio is None else ratio, DataType.FLOAT)
    unit = g.call("composed::uniform", sizes_of(g, data), DataType.FLOAT)
    mask = g.op("Or", g.op("Not", g.op("Less", unit, chance)), g.op("Not", trains))
    factor = g.op("Where", trains, g.op("Div", 1.0, g.op("Sub", 1.0, chance)), 1.0)
    # In inference the factor is 1 and the mask is all true.
    scaled = g.op("Mul", data, g.cast(factor, dtype))
    return [g.call("composed::where", condition=mask, self=scaled, other=g.constant(0, dtype)), mask]


@onnx_symbolic("before12::Dropout")
def dropout_10(g: GraphContext, data: Value, ratio: float = 0.5, outputs: int = 1) -> list[Value]:
    """Below 12 nothing is dropped, and the mask is all true; below 10 it has the data's type."""
    result = [g.op("Identity", data)]
    if outputs > 1:
        mask = g.call("aten::ones_like", data, DataType.BOOL)
        expected = g.expected[1].dtype if len(g.expected) > 1 else None
        result.append(g.cast(mask, expected) if expected is not None else mask)
    return result

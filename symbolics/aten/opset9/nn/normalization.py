"""Normalization: batch, instance, layer, group, root mean square."""

import math

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.moments import (
    affine_of_channels,
    along_channels,
    cast_like,
    filled_vector,
    group_channels,
    moments,
    root_mean_square,
    trailing_axes,
    widen_halves,
)


def _axes(g: GraphContext, input: Value, first: int) -> list[int]:
    """The axes from `first` on, without the channel axis 1 if `first` is 0."""
    rank = g.rank(input)
    if rank is None:
        raise g.refuse("the rank of the input must be known")
    return [axis for axis in range(first, rank) if first or axis != 1]


def _channels(g: GraphContext, input: Value, *parameters: Value | None) -> int | None:
    """The number of channels, from a parameter or from the input, if known."""
    for value, axis in (*((parameter, 0) for parameter in parameters), (input, 1)):
        shape = None if value is None else g.shape(value)
        if shape is not None and len(shape) > axis and isinstance(shape[axis], int):
            return shape[axis]  # type: ignore[return-value]
    return None


def _by_batch_statistics(
    g: GraphContext, input: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """The normalized input, and mean and reciprocal standard deviation of each channel."""
    wide, (weight, bias) = widen_halves(g, input, weight, bias)
    axes = _axes(g, input, 0)
    centred, mean, deviation = moments(g, wide, axes, eps)
    scaled = affine_of_channels(g, g.op("Div", centred, deviation), weight, bias, input)
    inverse = g.op("Reciprocal", g.op("Squeeze", deviation, axes=axes))
    return cast_like(g, scaled, input), g.op("Squeeze", mean, axes=axes), inverse


def _by_given_statistics(
    g: GraphContext,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    eps: float,
) -> Value:
    if 0 in (g.shape(input) or ()):
        # Nothing is normalised; PyTorch takes parameters of any length here, and ONNX does not.
        return g.op("Identity", input)
    channels = _channels(g, input, mean, var, weight, bias)
    dtypes = {g.dtype(value) for value in (input, weight, bias, mean, var) if value is not None}
    wide = input
    if len(dtypes) > 1:
        wide, (weight, bias) = widen_halves(g, input, weight, bias)
        mean, var = (g.cast(statistic, g.dtype(wide) or DataType.FLOAT) for statistic in (mean, var))
    if (weight is None or bias is None) and channels is None:
        scale = g.op("Sqrt", g.op("Add", along_channels(g, var, input), eps))
        normalised = g.op("Div", g.op("Sub", wide, along_channels(g, mean, input)), scale)
        return cast_like(g, affine_of_channels(g, normalised, weight, bias, input), input)
    if weight is None:
        weight = filled_vector(g, mean, channels, 1.0)  # type: ignore[arg-type]
    if bias is None:
        bias = filled_vector(g, mean, channels, 0.0)  # type: ignore[arg-type]
    return cast_like(g, g.op("BatchNormalization", wide, weight, bias, mean, var, epsilon=eps), input)


@onnx_symbolic(["aten::native_batch_norm", "aten::_native_batch_norm_legit"])
def native_batch_norm(
    g: GraphContext,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None = None,
    running_var: Value | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Value, Value, Value]:
    # Statistics of half precision have the element type of the parameters.
    saved = g.expected[1].dtype if len(g.expected) > 2 else None
    if training or running_mean is None or running_var is None:
        # The in-place pass has already added nodes for the new running statistics, if they are used.
        output, mean, deviation = _by_batch_statistics(g, input, weight, bias, eps)
        if saved is not None:
            mean, deviation = g.cast(mean, saved), g.cast(deviation, saved)
        return output, mean, deviation
    # ATen's CPU kernel saves no statistics in inference.
    double = g.dtype(input) == DataType.DOUBLE
    empty = g.constant(np.empty(0), saved or (DataType.DOUBLE if double else DataType.FLOAT))
    return _by_given_statistics(g, input, weight, bias, running_mean, running_var, eps), empty, empty


def _updated_statistics(
    g: GraphContext, input: Value, running_mean: Value, running_var: Value, momentum: float
) -> list[Value]:
    """The running statistics after a batch, with the unbiased variance."""
    wide, _ = widen_halves(g, input)
    axes = _axes(g, input, 0)
    moments = (
        g.call("aten::mean", self=wide, dim=axes),
        g.call("aten::var", self=wide, dim=axes, correction=1),
    )
    updated = []
    for running, batch in zip((running_mean, running_var), moments, strict=True):
        added = g.op("Mul", g.cast(batch, g.dtype(running) or DataType.FLOAT), momentum)
        updated.append(g.op("Add", g.op("Mul", running, 1.0 - momentum), added))
    return updated


def _register_batch_norm_of_one_mode(name: str, training: bool, reserve: bool, functional: bool) -> None:
    """The batch norms without an argument for training.

    Some also return cuDNN's reserve, and, if functional, the new running statistics. For the others the
    in-place pass has already added nodes for the new statistics, if they are used.
    """

    @onnx_symbolic(f"aten::{name}")
    def batch_norm_of_one_mode(
        g: GraphContext,
        input: Value,
        weight: Value | None,
        bias: Value | None,
        running_mean: Value | None,
        running_var: Value | None,
        momentum: float,
        eps: float,
    ) -> tuple[Value, ...]:
        if running_mean is None or running_var is None:
            raise g.refuse("it needs running statistics")
        results = native_batch_norm(
            g, input, weight, bias, running_mean, running_var, training, momentum, eps
        )
        # Only cuDNN uses the reserve, for gradients.
        empty = [g.constant(np.empty(0), DataType.UINT8)] if reserve else []
        new = _updated_statistics(g, input, running_mean, running_var, momentum) if functional else []
        return *results, *empty, *new


for _name, _training, _reserve, _functional in (
    ("_native_batch_norm_legit_no_training", False, False, False),
    ("_batch_norm_no_update", False, True, False),
    ("_batch_norm_with_update", True, True, False),
    ("_batch_norm_with_update_functional", True, True, True),
):
    _register_batch_norm_of_one_mode(_name, _training, _reserve, _functional)


def _register_batch_norm(name: str, functional: bool) -> None:
    """The batch norms that return the result alone, or, if functional, the new running statistics too."""

    @onnx_symbolic(f"aten::{name}")
    def batch_norm(
        g: GraphContext,
        input: Value,
        weight: Value | None,
        bias: Value | None,
        running_mean: Value | None,
        running_var: Value | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Value | tuple[Value | None, ...]:
        results = native_batch_norm(
            g, input, weight, bias, running_mean, running_var, training, momentum, eps
        )
        if not functional:
            return results[0]
        if not training or running_mean is None or running_var is None:
            return *results, running_mean, running_var
        return *results, *_updated_statistics(g, input, running_mean, running_var, momentum)


_register_batch_norm("batch_norm", functional=False)
_register_batch_norm("_native_batch_norm_legit_functional", functional=True)


@onnx_symbolic("aten::instance_norm")
def instance_norm(
    g: GraphContext,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Value:
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise g.refuse("use_input_stats=False needs running statistics")
        return _by_given_statistics(g, input, weight, bias, running_mean, running_var, eps)
    if 0 in (g.shape(input) or ()):
        return g.op("Identity", input)
    channels = _channels(g, input, weight, bias)
    if channels is None or not g.has_kernel("InstanceNormalization", input):
        wide, (weight, bias) = widen_halves(g, input, weight, bias)
        centred, _, deviation = moments(g, wide, _axes(g, input, 2), eps)
        normalised = g.op("Div", centred, deviation)
        return cast_like(g, affine_of_channels(g, normalised, weight, bias, input), input)
    scale = filled_vector(g, input, channels, 1.0) if weight is None else weight
    shift = filled_vector(g, input, channels, 0.0) if bias is None else bias
    return g.op("InstanceNormalization", input, scale, shift, epsilon=eps)


def _scale(g: GraphContext, input: Value, weight: Value | None, sizes: list[int | Value]) -> Value | None:
    """The weight, or ones where there is none and their number is known."""
    if weight is not None or any(isinstance(size, Value) for size in sizes):
        return weight
    return filled_vector(g, input, [size for size in sizes if isinstance(size, int)], 1.0)


def _computed_in_float(g: GraphContext, *values: Value | None) -> bool:
    """Whether all have one element type, for which ONNX's operators, computing in FLOAT, are exact."""
    element_types = {g.dtype(value) for value in values if value is not None}
    return len(element_types) == 1 and DataType.DOUBLE not in element_types


@onnx_symbolic("aten::layer_norm")
def layer_norm(
    g: GraphContext,
    input: Value,
    normalized_shape: list[int | Value],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Without elements the input is returned, because onnxruntime refuses to normalize it."""
    if 0 in normalized_shape:
        return g.op("Identity", input)
    scale = _scale(g, input, weight, normalized_shape)
    if scale is None or not _computed_in_float(g, input, weight, bias):
        return g.call_outputs("composed::layer_norm", input, len(normalized_shape), weight, bias, eps)[0]
    return g.op("LayerNormalization", input, scale, bias, axis=-len(normalized_shape), epsilon=eps)


@onnx_symbolic("aten::native_layer_norm")
def native_layer_norm(
    g: GraphContext,
    input: Value,
    normalized_shape: list[int | Value],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> tuple[Value, Value, Value]:
    """The statistics have the input's element type, as in torch.export."""
    output = g.call("aten::layer_norm", input, normalized_shape, weight, bias, eps)
    wide, _ = widen_halves(g, input, weight)
    axes = trailing_axes(g, input, len(normalized_shape))
    if 0 in normalized_shape:
        mean = g.op("ReduceSum", input, axes=axes, keepdims=1)
        return output, mean, g.op("Div", mean, 0.0)
    _, mean, deviation = moments(g, wide, axes, eps)
    return output, cast_like(g, mean, input), cast_like(g, g.op("Reciprocal", deviation), input)


@onnx_symbolic("aten::group_norm")
def group_norm(
    g: GraphContext,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    shape = g.shape(input)
    if 0 in (shape or ()):
        return g.op("Identity", input)
    channels = None if shape is None else shape[1]
    scale, shift = weight, bias
    if isinstance(channels, int):
        scale = filled_vector(g, input, channels, 1.0) if weight is None else weight
        shift = filled_vector(g, input, channels, 0.0) if bias is None else bias
    if scale is None or shift is None or not _computed_in_float(g, input, weight, bias):
        return g.call("composed::group_norm", input, num_groups, weight, bias, eps)
    return g.op("GroupNormalization", input, scale, shift, num_groups=num_groups, epsilon=eps)


@onnx_symbolic("aten::native_group_norm")
def native_group_norm(
    g: GraphContext,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: int | Value,
    C: int | Value,
    HxW: int | Value,
    group: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    output = g.call("aten::group_norm", input, group, weight, bias, eps)
    wide, _ = widen_halves(g, input)
    _, mean, deviation = moments(g, group_channels(g, wide, group), [2], eps)
    return (
        output,
        cast_like(g, g.op("Squeeze", mean, axes=[2]), input),
        cast_like(g, g.op("Reciprocal", g.op("Squeeze", deviation, axes=[2])), input),
    )


def _epsilon(g: GraphContext, input: Value, eps: float | None) -> float:
    """The `eps` of rms_norm; None means the machine epsilon of the input's type."""
    if eps is not None:
        return eps
    dtype = g.dtype(input)
    if dtype is None:
        raise g.refuse("without eps the element type of the input must be known")
    bits = {DataType.FLOAT16: 10, DataType.BFLOAT16: 7, DataType.DOUBLE: 52}.get(dtype, 23)
    return math.ldexp(1.0, -bits)


@onnx_symbolic("aten::rms_norm")
def rms_norm(
    g: GraphContext,
    input: Value,
    normalized_shape: list[int | Value],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    if 0 in normalized_shape:
        return g.op("Identity", input)
    scale = _scale(g, input, weight, normalized_shape)
    if eps is None or scale is None or not _computed_in_float(g, input, weight):
        epsilon = _epsilon(g, input, eps)
        return root_mean_square(g, input, len(normalized_shape), weight, epsilon)[0]
    return g.op("RMSNormalization", input, scale, axis=-len(normalized_shape), epsilon=eps)


@onnx_symbolic("aten::_fused_rms_norm")
def _fused_rms_norm(
    g: GraphContext, input: Value, normalized_shape: list[int], weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    return root_mean_square(g, input, len(normalized_shape), weight, _epsilon(g, input, eps))

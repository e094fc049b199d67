"""Batch normalization, normalization over neighbouring channels, and biases."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.moments import cast_like, moments, widen_halves
from ...compositions.operator_tables import register_table, register_variant
from ...compositions.response_normalization import response_normalization
from ...compositions.size_arithmetic import compute, known_rank, product
from .layout import IMAGES, DataLayout


@onnx_symbolic("tf::BiasAdd")
def bias_add(g: GraphContext, value: Value, bias: Value, data_format: str = "NHWC") -> Value:
    """In `NCHW` the channels are axis 1, whatever the rank is."""
    if data_format not in ("NHWC", "NCHW"):
        raise g.refuse(f"data_format '{data_format}' is not supported")
    trailing = known_rank(g, value) - 2 if data_format == "NCHW" else 0
    if trailing > 0:
        bias = g.op("Unsqueeze", bias, axes=list(range(1, trailing + 1)))
    return g.op("Add", value, bias)


register_table("tf", "value bias: BiasAddV1=Add")


def _normalize(
    g: GraphContext,
    layout: DataLayout,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    """Batch normalization by stored statistics, whose element type may be wider than that of `x`."""
    parameters = [scale, offset, mean, variance]
    wide_x, wide_parameters = x, list(parameters)
    if any(g.dtype(parameter) != g.dtype(x) for parameter in parameters):
        wide_x, wide_parameters = widen_halves(g, x, *parameters)  # type: ignore[assignment]
    result = g.op("BatchNormalization", layout.channels_first(g, wide_x), *wide_parameters, epsilon=eps)
    return cast_like(g, layout.restore(g, result), x)


def _normalize_by_batch(
    g: GraphContext,
    layout: DataLayout,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    eps: float,
    factor: float,
) -> list[Value | None]:
    """Batch normalization by the statistics of the batch; also returns the new running statistics."""
    wide_x, (scale, offset) = widen_halves(g, x, scale, offset)  # type: ignore[assignment]
    images = layout.channels_first(g, wide_x)
    axes = [axis for axis in range(layout.dimensions + 2) if axis != 1]
    trailing_axes = list(range(1, layout.dimensions + 1))
    centred, average, deviation = moments(g, images, axes, eps)
    batch_variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=axes, keepdims=0)
    weight, bias = (g.op("Unsqueeze", parameter, axes=trailing_axes) for parameter in (scale, offset))
    result = g.op("Add", g.op("Mul", g.op("Div", centred, deviation), weight), bias)
    average = g.op("Squeeze", average, axes=axes)
    count = product(g, [g.size(images, axis) for axis in axes])
    # TensorFlow's running variance is the unbiased one, of count - 1 degrees of freedom.
    divisor = compute(g, "max", compute(g, "sub", count, 1), 1)
    ratio = g.op("Div", g.constant(count, DataType.FLOAT), g.constant(divisor, DataType.FLOAT))
    unbiased = g.op("Mul", batch_variance, ratio)
    if factor != 1:
        average_out = g.op("Add", g.op("Mul", mean, 1 - factor), g.op("Mul", average, factor))
        unbiased = g.op("Add", g.op("Mul", variance, 1 - factor), g.op("Mul", unbiased, factor))
    else:
        average_out = average
    return [cast_like(g, layout.restore(g, result), x), average_out, unbiased, average, batch_variance]


def fused_batch_norm(
    g: GraphContext,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    epsilon: float = 1e-4,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
    has_reserve: bool = False,
) -> list[Value | None]:
    """The normalized input, the new statistics, and the statistics that the gradient uses.

    The reserve of version 3 serves the gradient on GPUs; the CPU kernel returns one zero.
    """
    layout = DataLayout.of(g, data_format)
    operands = (layout, x, scale, offset, mean, variance, epsilon)
    results: list[Value | None] = (
        _normalize_by_batch(g, *operands, exponential_avg_factor)
        if is_training
        else [_normalize(g, *operands), mean, variance, mean, variance]
    )
    return [*results, g.constant(0.0, g.dtype(scale) or DataType.FLOAT)] if has_reserve else results


register_variant(["tf::FusedBatchNorm", "tf::FusedBatchNormV2"], fused_batch_norm, has_reserve=False)
register_variant("tf::FusedBatchNormV3", fused_batch_norm, has_reserve=True)


def batch_norm_gradient(
    g: GraphContext,
    y_backprop: Value,
    x: Value,
    scale: Value,
    reserve_space_1: Value,
    reserve_space_2: Value,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Value | None]:
    """The gradients of input, scale and offset; the last two results have no elements or are not read.

    Args:
        reserve_space_1: the mean, that of the batch in training.
        reserve_space_2: the variance, also in training.
    """
    layout = DataLayout.of(g, data_format)
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", reserve_space_2, epsilon)))
    gradients = g.call_outputs(
        "aten::native_batch_norm_backward",
        layout.channels_first(g, y_backprop),
        layout.channels_first(g, x),
        scale,
        reserve_space_1,
        reserve_space_2,
        reserve_space_1,
        inverse,
        is_training,
        epsilon,
        [True, True, True],
    )
    return [layout.restore(g, gradients[0]), *gradients[1:], None, None]


register_variant("tf::FusedBatchNormGradV2", batch_norm_gradient)
register_variant("tf::FusedBatchNormGrad", batch_norm_gradient)


@onnx_symbolic("tf::FusedBatchNormGradV3")
def fused_batch_norm_grad(
    g: GraphContext,
    y_backprop: Value,
    x: Value,
    scale: Value,
    reserve_space_1: Value,
    reserve_space_2: Value,
    reserve_space_3: Value,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Value | None]:
    """The third reserve serves kernels of GPUs only."""
    operands = (y_backprop, x, scale, reserve_space_1, reserve_space_2)
    return batch_norm_gradient(g, *operands, epsilon, data_format, is_training)


@onnx_symbolic("tf::BatchNormWithGlobalNormalization")
def batch_norm_with_global_normalization(
    g: GraphContext,
    t: Value,
    m: Value,
    v: Value,
    beta: Value,
    gamma: Value,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> Value:
    inverse = g.op("Reciprocal", g.op("Sqrt", g.op("Add", v, variance_epsilon)))
    if scale_after_normalization:
        inverse = g.op("Mul", inverse, gamma)
    return g.op("Add", g.op("Mul", g.op("Sub", t, m), inverse), beta)


@onnx_symbolic("tf::LRN")
def lrn(
    g: GraphContext,
    input: Value,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> Value:
    """ONNX divides `alpha` by the window's number of channels, TensorFlow does not: multiply by it."""
    size = 2 * depth_radius + 1
    images = IMAGES.channels_first(g, input)
    result = response_normalization(g, images, size, alpha * size, beta, bias)
    return IMAGES.restore(g, result)


@onnx_symbolic("tf::L2Loss")
def l2_loss(g: GraphContext, t: Value) -> Value:
    """Half the sum of the squares."""
    return g.op("Mul", g.op("ReduceSumSquare", t, keepdims=0), 0.5)

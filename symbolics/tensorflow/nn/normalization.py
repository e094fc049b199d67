"""Normalization of batches and of neighbouring channels, and biases."""

from __future__ import annotations

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.moments import moments, narrowed, widened
from ...compositions.response_normalization import response_normalization
from ...compositions.sizes import compute, known_rank, product
from .layout import IMAGES, Layout


@onnx_symbolic("tf::BiasAdd")
def bias_add(g: GraphContext, value: Value, bias: Value, data_format: str = "NHWC") -> Value:
    """With `NCHW` the channels are axis 1, at any rank."""
    if data_format not in ("NHWC", "NCHW"):
        raise g.refuse(f"data_format '{data_format}' is not supported")
    behind = known_rank(g, value) - 2 if data_format == "NCHW" else 0
    if behind > 0:
        bias = g.op("Unsqueeze", bias, axes=list(range(1, behind + 1)))
    return g.op("Add", value, bias)


@onnx_symbolic("tf::BiasAddV1")
def bias_add_v1(g: GraphContext, value: Value, bias: Value) -> Value:
    return g.op("Add", value, bias)


def _normalized(
    g: GraphContext,
    layout: Layout,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    """Batch normalization by given statistics, which may be of a wider type than `x`."""
    parameters = [scale, offset, mean, variance]
    wide, others = x, list(parameters)
    if any(g.dtype(each) != g.dtype(x) for each in parameters):
        wide, others = widened(g, x, *parameters)  # type: ignore[assignment]
    result = g.op("BatchNormalization", layout.channels_first(g, wide), *others, epsilon=eps)
    return narrowed(g, layout.restored(g, result), x)


def _of_batch(
    g: GraphContext,
    layout: Layout,
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    eps: float,
    factor: float,
) -> list[Value | None]:
    """Batch normalization by the batch's own statistics, and the new running ones."""
    wide, (scale, offset) = widened(g, x, scale, offset)  # type: ignore[assignment]
    images = layout.channels_first(g, wide)
    axes = [axis for axis in range(layout.dimensions + 2) if axis != 1]
    behind = list(range(1, layout.dimensions + 1))
    centred, average, deviation = moments(g, images, axes, eps)
    spread = g.op("ReduceMean", g.op("Mul", centred, centred), axes=axes, keepdims=0)
    weight, bias = (g.op("Unsqueeze", each, axes=behind) for each in (scale, offset))
    result = g.op("Add", g.op("Mul", g.op("Div", centred, deviation), weight), bias)
    average = g.op("Squeeze", average, axes=axes)
    count = product(g, [g.size(images, axis) for axis in axes])
    rest = compute(g, "max", compute(g, "sub", count, 1), 1)
    ratio = g.op("Div", g.constant(count, DataType.FLOAT), g.constant(rest, DataType.FLOAT))
    unbiased = g.op("Mul", spread, ratio)
    if factor != 1:
        average_out = g.op("Add", g.op("Mul", mean, 1 - factor), g.op("Mul", average, factor))
        unbiased = g.op("Add", g.op("Mul", variance, 1 - factor), g.op("Mul", unbiased, factor))
    else:
        average_out = average
    return [narrowed(g, layout.restored(g, result), x), average_out, unbiased, average, spread]


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
) -> list[Value | None]:
    """The normalized input, the new statistics, and those that the gradient uses."""
    layout = Layout.of(g, data_format)
    if is_training:
        return _of_batch(g, layout, x, scale, offset, mean, variance, epsilon, exponential_avg_factor)
    return [_normalized(g, layout, x, scale, offset, mean, variance, epsilon), mean, variance, mean, variance]


onnx_symbolic("tf::FusedBatchNorm")(fused_batch_norm)
onnx_symbolic("tf::FusedBatchNormV2")(fused_batch_norm)


@onnx_symbolic("tf::FusedBatchNormV3")
def fused_batch_norm_v3(
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
) -> list[Value | None]:
    """The last output is for the gradient on GPUs; the CPU kernel gives one zero."""
    results = fused_batch_norm(
        g, x, scale, offset, mean, variance, epsilon, exponential_avg_factor, data_format, is_training
    )
    return [*results, g.constant(0.0, g.dtype(scale) or DataType.FLOAT)]


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
    """ONNX divides `alpha` by the number of channels in the window."""
    size = 2 * depth_radius + 1
    images = IMAGES.channels_first(g, input)
    result = response_normalization(g, images, size, alpha * size, beta, bias)
    return IMAGES.restored(g, result)


@onnx_symbolic("tf::L2Loss")
def l2_loss(g: GraphContext, t: Value) -> Value:
    """Half the sum of the squares."""
    total = g.op("ReduceSumSquare", t, keepdims=0)
    return g.op("Mul", total, 0.5)

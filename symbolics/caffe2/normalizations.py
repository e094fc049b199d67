"""Normalization over batches, instances, groups, layers and channels."""

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.response_normalization import response_normalization
from ..compositions.size_arithmetic import axis_from_front
from ._broadcasting import along_channels
from ._layouts import from_channels_first, is_channels_last, set_shape_like, to_channels_first
from .matrix_products import as_matrix


@onnx_symbolic("caffe2::SpatialBN")
def spatial_bn(
    g: GraphContext,
    X: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    sums: Value | None = None,
    sumsq: Value | None = None,
    is_test: int = 0,
    epsilon: float = 1e-5,
    order: str = "NCHW",
) -> Value:
    if not is_test:
        raise g.refuse(
            "normalization of a training net (is_test is 0) is not supported: convert the net for inference"
        )
    data = to_channels_first(g, X, order)
    result = g.op("BatchNormalization", data, scale, bias, mean, var, epsilon=epsilon)
    return from_channels_first(g, set_shape_like(result, data), order)


@onnx_symbolic("caffe2::InstanceNorm")
def instance_norm(
    g: GraphContext, input: Value, scale: Value, bias: Value, epsilon: float = 1e-5, order: str = "NCHW"
) -> Value:
    data = to_channels_first(g, input, order)
    result = g.op("InstanceNormalization", data, scale, bias, epsilon=epsilon)
    return from_channels_first(g, set_shape_like(result, data), order)


@onnx_symbolic("caffe2::GroupNorm")
def group_norm(
    g: GraphContext,
    X: Value,
    gamma: Value,
    beta: Value,
    group: int = 32,
    epsilon: float = 1e-5,
    order: str = "NCHW",
) -> Value:
    data = to_channels_first(g, X, order)
    scale, bias = g.op("Reshape", gamma, [-1]), g.op("Reshape", beta, [-1])
    result = g.op("GroupNormalization", data, scale, bias, num_groups=group, epsilon=epsilon)
    return from_channels_first(g, set_shape_like(result, data), order)


@onnx_symbolic("caffe2::LayerNorm")
def layer_norm(
    g: GraphContext,
    X: Value,
    gamma: Value | None = None,
    beta: Value | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
    elementwise_affine: int = 0,
) -> list[Value]:
    """Also returns the mean and the standard deviation, [dimensions before the axis, 1]."""
    # ONNX's LayerNormalization returns the inverse of the deviation, Caffe2's the deviation itself.
    rows = as_matrix(g, X, axis)
    mean = g.op("ReduceMean", rows, axes=[1], keepdims=1)
    centred = g.op("Sub", rows, mean)
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=[1], keepdims=1)
    deviation = g.op("Sqrt", g.op("Add", variance, epsilon))
    normalized = g.op("Div", centred, deviation)
    if elementwise_affine:
        if gamma is None or beta is None:
            raise g.refuse("it has elementwise_affine, but no gamma and beta")
        normalized = g.op("Mul", normalized, g.op("Reshape", gamma, [-1]))
        normalized = g.op("Add", normalized, g.op("Reshape", beta, [-1]))
    axis = axis_from_front(g, X, axis)
    full_shape = g.op("Shape", X)
    results = [set_shape_like(g.op("Reshape", normalized, full_shape), X)]
    if len(g.expected) > 1:
        outer_sizes = g.op("Slice", full_shape, starts=[0], ends=[axis], axes=[0])
        shape = g.op("Concat", outer_sizes, g.constant([1]), axis=0)
        results += [g.op("Reshape", item, shape) for item in (mean, deviation)]
    return results[: max(len(g.expected), 1)]


@onnx_symbolic("caffe2::RMSNorm")
def rms_norm(
    g: GraphContext, X: Value, gamma: Value, beta: Value, axis: int = 1, eps: float = 0.0
) -> list[Value]:
    """Also returns the reciprocal of the root of the mean square, [dimensions before the axis]."""
    rows = as_matrix(g, X, axis)
    mean_square = g.op("ReduceMean", g.op("Mul", rows, rows), axes=[1], keepdims=1)
    reciprocal = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean_square, eps)))
    scaled = g.op("Mul", g.op("Mul", rows, reciprocal), g.op("Reshape", gamma, [-1]))
    shifted = g.op("Add", scaled, g.op("Reshape", beta, [-1]))
    full_shape = g.op("Shape", X)
    results = [set_shape_like(g.op("Reshape", shifted, full_shape), X)]
    if len(g.expected) > 1:
        outer_sizes = g.op("Slice", full_shape, starts=[0], ends=[axis_from_front(g, X, axis)], axes=[0])
        results.append(g.op("Reshape", reciprocal, outer_sizes))
    return results


@onnx_symbolic("caffe2::LRN")
def lrn(
    g: GraphContext,
    X: Value,
    size: int = 0,
    alpha: float = 0.0,
    beta: float = 0.0,
    bias: float = 1.0,
    order: str = "NCHW",
) -> Value:
    data = to_channels_first(g, X, order)
    result = response_normalization(g, data, size, alpha, beta, bias)
    return from_channels_first(g, set_shape_like(result, data), order)


@onnx_symbolic("caffe2::AffineChannel")
def affine_channel(g: GraphContext, X: Value, scale: Value, bias: Value, order: str = "NCHW") -> Value:
    is_channels_last(g, order)
    scaled = g.op("Mul", X, along_channels(g, X, scale, order))
    return g.op("Add", scaled, along_channels(g, X, bias, order))


@onnx_symbolic("caffe2::Normalize")
def normalize(g: GraphContext, X: Value, axis: int = -1) -> Value:
    """Divide by the Euclidean norm, which is at least 1e-12."""
    axis = axis_from_front(g, X, axis)
    norm = g.op("ReduceL2", X, axes=[axis], keepdims=1)
    # The bound keeps a vector of zeros at zero, where the norm would divide by zero.
    return g.op("Div", X, g.op("Max", norm, 1e-12))

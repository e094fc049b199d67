"""Operators that ONNX had as experiments until 1.4, and those of onnxruntime's optimizer in ONNX's domain.

onnxruntime has kernels of the experiments up to opset 9, and files of Core ML and MXNet converters have them.
No opset of ONNX has these operators, so that they are composed at every opset. The semantics are those of
`onnx/defs/experiments/defs.cc` of onnx 1.3.0, and of onnxruntime's kernels.
"""

from ...registration import GraphContext, Value, onnx_symbolic


@onnx_symbolic("onnx::Affine")
def affine(g: GraphContext, X: Value, alpha: float = 1.0, beta: float = 0.0) -> Value:
    return g.op("Add", g.op("Mul", X, alpha), beta)


@onnx_symbolic("onnx::Scale")
def scale(g: GraphContext, input: Value, scale: float = 1.0) -> Value:
    return g.op("Mul", input, scale)


@onnx_symbolic("onnx::ScaledTanh")
def scaled_tanh(g: GraphContext, input: Value, alpha: float = 1.0, beta: float = 1.0) -> Value:
    return g.op("Mul", g.op("Tanh", g.op("Mul", input, beta)), alpha)


@onnx_symbolic("onnx::ParametricSoftplus")
def parametric_softplus(g: GraphContext, X: Value, alpha: float = 1.0, beta: float = 1.0) -> Value:
    return g.op("Mul", g.op("Softplus", g.op("Mul", X, beta)), alpha)


@onnx_symbolic("onnx::ImageScaler")
def image_scaler(g: GraphContext, input: Value, bias: list[float], scale: float = 1.0) -> Value:
    """The bias has a number for each channel."""
    column = g.op("Reshape", g.constant(bias, g.dtype(input)), [1, -1, 1, 1])
    return g.op("Add", g.op("Mul", input, scale), column)


@onnx_symbolic("onnx::Crop")
def crop(g: GraphContext, input: Value, border: list[int], scale: list[int] | None = None) -> Value:
    """Cut `border` pixels from the left, top, right and bottom; `scale` states height and width instead."""
    left, top, right, bottom = border
    if scale is not None:
        ends = [top + scale[0], left + scale[1]]
    else:
        # An end of 0 would be the start of the axis.
        ends = [-side if side else 2**31 - 1 for side in (bottom, right)]
    return g.op("Slice", input, starts=[top, left], ends=ends, axes=[2, 3])


@onnx_symbolic("onnx::DynamicSlice")
def dynamic_slice(
    g: GraphContext, data: Value, starts: Value, ends: Value, axes: Value | None = None
) -> Value:
    return g.op("Slice", data, starts=starts, ends=ends, axes=axes)


@onnx_symbolic(["onnx::MemcpyFromHost", "onnx::MemcpyToHost"])
def copy_between_devices(g: GraphContext, X: Value) -> Value:
    """The optimizer for GPUs writes it; the runtime that reads the new file adds its own."""
    return g.op("Identity", X)


@onnx_symbolic("onnx::SimplifiedLayerNormalization")
def simplified_layer_normalization(
    g: GraphContext, X: Value, scale: Value, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Without the second output, which only training reads."""
    return g.op("RMSNormalization", X, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)

"""Convolutions, matrix products and recurrent layers of integers, with FLOAT or quantized results."""

from typing import Any

from ...registration import DataType, GraphContext, Value
from . import microsoft_symbolic
from .channels_last import move_channels
from .quantized_products import multiply_to_float


@microsoft_symbolic("QLinearConv")
def q_linear_conv(
    g: GraphContext,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    w: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    B: Value | None = None,
    channels_last: int = 0,
    **attributes: Any,
) -> Value:
    """ONNX's operator, with an image that may have its channels last; the weight has them second."""
    image = move_channels(g, x, first=True) if channels_last else x
    parameters = x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B
    result: Value = g.op("QLinearConv", image, *parameters, **attributes)
    return move_channels(g, result, first=False) if channels_last else result


@microsoft_symbolic("QGemm")
def q_gemm(
    g: GraphContext,
    A: Value,
    a_scale: Value,
    a_zero_point: Value,
    B: Value,
    b_scale: Value,
    b_zero_point: Value,
    C: Value | None = None,
    y_scale: Value | None = None,
    y_zero_point: Value | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """The bias has units of `alpha * a_scale * b_scale`; without `y_scale` the result is FLOAT."""
    first = g.op("Transpose", A, perm=[1, 0]) if transA else A
    second = g.op("Transpose", B, perm=[1, 0]) if transB else B
    scales = g.op("Mul", a_scale, alpha) if alpha != 1 else a_scale, b_scale
    bias = None
    if C is not None:
        bias = g.op("Mul", g.cast(C, DataType.FLOAT), g.op("Mul", *scales))
    real = multiply_to_float(g, first, second, scales, (a_zero_point, b_zero_point), bias)
    return real if y_scale is None else g.op("QuantizeLinear", real, y_scale, y_zero_point)


@microsoft_symbolic("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    g: GraphContext,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    P: Value | None,
    W_scale: Value,
    W_zero_point: Value,
    R_scale: Value,
    R_zero_point: Value,
    **attributes: Any,
) -> list[Value]:
    """An LSTM with dequantized weights, whose gates are the last dimension.

    The kernel also quantizes the inputs of each product; without that, the results are closer to those of the
    layer that was quantized.
    """

    def dequantize(weight: Value, scale: Value, zero_point: Value) -> Value:
        # A scale for each direction, or for each of its gates.
        axes = [1, 2] if g.rank(scale) == 1 else [1]
        scale, zero_point = (g.op("Unsqueeze", value, axes=axes) for value in (scale, zero_point))
        offset = g.op("Sub", g.cast(weight, DataType.INT32), g.cast(zero_point, DataType.INT32))
        real = g.op("Mul", g.cast(offset, DataType.FLOAT), scale)
        return g.op("Transpose", real, perm=[0, 2, 1])

    weights = dequantize(W, W_scale, W_zero_point), dequantize(R, R_scale, R_zero_point)
    states = B, sequence_lens, initial_h, initial_c, P
    return list(g.op("LSTM", X, *weights, *states, **attributes, outputs=3))

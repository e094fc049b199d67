"""Convolutions, matrix products and recurrent layers of integers, with FLOAT or quantized results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value
from ...registration.warning import warn
from . import microsoft_symbolic, scanless_registry
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
    direction: str = "forward",
    activations: list[str] | None = None,
    **attributes: Any,
) -> list[Value]:
    """An LSTM of one step for each step, whose input and hidden state have 256 values.

    The kernel quantizes the input once, the hidden states of the batch before each step, and multiplies
    integers. The products of the dequantized numbers are the same. Two results of the kernel differ: with
    several threads it quantizes parts of the batch on their own, and sums of int8 weights saturate on
    processors without VNNI instructions.
    """
    states = initial_h, initial_c
    if sequence_lens is not None:
        # The quantized states of sequences that have ended are not defined: states stay in FLOAT.
        attributes |= {"direction": direction, **({"activations": activations} if activations else {})}
        quantization = W_scale, W_zero_point, R_scale, R_zero_point
        return write_layer(g, X, W, R, B, sequence_lens, *states, P, *quantization, **attributes)
    weights = _dequantize_gates(g, W, W_scale, W_zero_point), _dequantize_gates(g, R, R_scale, R_zero_point)
    directions = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    if len(directions) == 2 and {"activation_alpha", "activation_beta"} & attributes.keys():
        raise g.refuse("parameters of the activations of two directions are not supported")
    data = _round_to_bytes(g, X)
    results: list[list[Value]] = []
    for number, name in enumerate(directions):
        if activations:
            attributes["activations"] = activations[3 * number : 3 * number + 3]

        def select(value: Value | None, number: int = number) -> Value | None:
            if value is None or len(directions) == 1:
                return value
            return g.op("Slice", value, starts=[number], ends=[number + 1], axes=[0])

        def run_step(state: Value, row: Value, select: Callable[..., Value | None] = select) -> list[Value]:
            hidden, cell = g.op("Split", state, axis=0, split=[1, 1], outputs=2)
            operands = *map(select, (*weights, B)), None, _round_to_bytes(g, hidden), cell, select(P)
            step = g.op("Unsqueeze", row, axes=[0])
            _, hidden, cell = g.op("LSTM", step, *operands, **attributes, outputs=3)
            return [g.op("Concat", hidden, cell, axis=0), g.op("Identity", hidden)]

        rows = g.call("aten::flip", self=data, dims=[0]) if name == "reverse" else data
        shape = [1, g.size(X, 1), g.size(R, 1)]
        zeros = g.call("composed::full", size=shape, fill_value=0.0, dtype=DataType.FLOAT)
        initial = g.op("Concat", *(zeros if value is None else select(value) for value in states), axis=0)
        last, sequence = g.call_outputs(
            "composed::scan_rows", step=run_step, initial=initial, sequences=[rows]
        )
        sequence.type, sequence.shape = X.type, ir.Shape([None] * 4)
        if name == "reverse":
            sequence = g.call("aten::flip", self=sequence, dims=[0])
        results.append([sequence, *g.op("Split", last, axis=0, split=[1, 1], outputs=2)])
    if len(results) == 1:
        return results[0]
    joined = zip(*results, strict=True)
    return [g.op("Concat", *pair, axis=0 if position else 1) for position, pair in enumerate(joined)]


@microsoft_symbolic("DynamicQuantizeLSTM", registry=scanless_registry)
def lstm_of_float_states(
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
    """An LSTM of dequantized weights, whose hidden states are not rounded to 256 values before each step."""
    warn(
        "the hidden states of DynamicQuantizeLSTM are not rounded to 8 bits, because the target has no Scan: "
        "results differ from onnxruntime's by about the rounding error, 0.01 for states between -1 and 1"
    )
    inputs = X, W, R, B, sequence_lens, initial_h, initial_c, P
    return write_layer(g, *inputs, W_scale, W_zero_point, R_scale, R_zero_point, **attributes)


def write_layer(
    g: GraphContext,
    data: Value,
    weight: Value,
    recurrent_weight: Value,
    bias: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    peepholes: Value | None,
    *quantization: Value,
    **attributes: Any,
) -> list[Value]:
    """An LSTM whose input has 256 values, and whose states are FLOAT.

    Args:
        quantization: scale and zero point of both weights.
    """
    weights = (
        _dequantize_gates(g, weight, *quantization[:2]),
        _dequantize_gates(g, recurrent_weight, *quantization[2:]),
    )
    inputs = bias, sequence_lens, initial_h, initial_c, peepholes
    return list(g.op("LSTM", _round_to_bytes(g, data), *weights, *inputs, **attributes, outputs=3))


def _dequantize_gates(g: GraphContext, weight: Value, scale: Value, zero_point: Value) -> Value:
    """A weight, whose gates are the last dimension there, and the second in an LSTM."""
    # A scale for each direction, or for each of its gates.
    axes = [1, 2] if g.rank(scale) == 1 else [1]
    scale, zero_point = (g.op("Unsqueeze", value, axes=axes) for value in (scale, zero_point))
    offset = g.op("Sub", g.cast(weight, DataType.INT32), g.cast(zero_point, DataType.INT32))
    real = g.op("Mul", g.cast(offset, DataType.FLOAT), scale)
    return g.op("Transpose", real, perm=[0, 2, 1])


def _round_to_bytes(g: GraphContext, value: Value) -> Value:
    """A tensor after DynamicQuantizeLinear and DequantizeLinear, in the arithmetic of every opset."""
    low = g.op("Min", g.op("ReduceMin", value, keepdims=0), 0.0)
    high = g.op("Max", g.op("ReduceMax", value, keepdims=0), 0.0)
    # The least normal number replaces a scale of 0, with which all elements are 0.
    scale = g.op("Max", g.op("Div", g.op("Sub", high, low), 255.0), float(np.finfo(np.float32).tiny))
    zero_point = g.call("aten::round", self=g.op("Div", g.op("Neg", low), scale))
    steps = g.op("Add", g.call("aten::round", self=g.op("Div", value, scale)), zero_point)
    level = g.op("Clip", steps, min=0.0, max=255.0)
    return g.op("Mul", g.op("Sub", level, zero_point), scale)

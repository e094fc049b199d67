"""The Int8 operators, emitted as float operators between DequantizeLinear and QuantizeLinear.

A tensor of the Int8 operators is UINT8 (a bias: INT32) with a scale and a zero point. `input_scales` and
`input_zero_points` have those of the inputs, in order; `Y_scale` and `Y_zero_point` those of the result.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions import affine_quantization
from ..compositions.affine_quantization import Grid
from ._layouts import from_channels_first, is_channels_last, to_channels_first
from .matrix_products import as_matrix

_LOW, _HIGH = 0, 255


def _dequantize(g: GraphContext, value: Value, scale: float, zero_point: int) -> Value:
    return affine_quantization.dequantize(g, value, Grid(scale, zero_point, _LOW, _HIGH), DataType.FLOAT)


def _dequantize_bias(g: GraphContext, value: Value, scales: Sequence[float]) -> Value:
    """Dequantize a bias by the product of the input's and the weight's scale, whatever its blob states."""
    # Caffe2 multiplies in double precision and stores a float.
    scale = float(np.float32(np.float64(scales[0]) * np.float64(scales[1])))
    low, high = -(2**31), 2**31 - 1
    return affine_quantization.dequantize(g, value, Grid(scale, None, low, high), DataType.FLOAT)


def _quantize(g: GraphContext, value: Value, scale: float, zero_point: int) -> Value:
    return affine_quantization.quantize(g, value, Grid(scale, zero_point, _LOW, _HIGH), DataType.UINT8)


def _check_same_quantization(
    g: GraphContext, scales: Sequence[float], zero_points: Sequence[int], scale: float, zero_point: int
) -> None:
    """Refuse a result whose quantization differs from that of its inputs, which Caffe2 refuses to run too."""
    if any(input_scale != scale for input_scale in scales) or any(
        input_zero_point != zero_point for input_zero_point in zero_points
    ):
        raise g.refuse("its Y_scale and Y_zero_point must equal those of its input, as in Caffe2")


@onnx_symbolic("caffe2::Int8Quantize")
def int8_quantize(g: GraphContext, X: Value, Y_scale: float = 1.0, Y_zero_point: int = 0) -> Value:
    return _quantize(g, X, Y_scale, Y_zero_point)


@onnx_symbolic("caffe2::Int8Dequantize")
def int8_dequantize(
    g: GraphContext, X: Value, input_scales: list[float], input_zero_points: list[int]
) -> Value:
    return _dequantize(g, X, input_scales[0], input_zero_points[0])


def _register_convolution(name: str, operator: str, activation: bool) -> None:
    def convolution(
        g: GraphContext,
        X: Value,
        filter: Value,
        bias: Value,
        input_scales: list[float],
        input_zero_points: list[int],
        kernels: Sequence[int] = (),
        strides: Sequence[int] = (),
        pads: Sequence[int] = (),
        dilations: Sequence[int] = (),
        adjs: Sequence[int] = (),
        legacy_pad: int = 0,
        group: int = 1,
        order: str = "NCHW",
        Y_scale: float = 1.0,
        Y_zero_point: int = 0,
    ) -> Value:
        """Transpose the integers, so that DequantizeLinear and QuantizeLinear surround the float operator."""
        rank = len(kernels) + 2
        data = _dequantize(g, to_channels_first(g, X, order, rank), input_scales[0], input_zero_points[0])
        weight = _dequantize(
            g, to_channels_first(g, filter, order, rank), input_scales[1], input_zero_points[1]
        )
        # Conv has no adjs, and ConvTranspose no dilations.
        specific_arguments = (
            {"adjs": list(adjs)} if operator == "ConvTranspose" else {"dilations": list(dilations)}
        )
        result = g.call(
            f"caffe2::{operator}",
            X=data,
            filter=weight,
            bias=_dequantize_bias(g, bias, input_scales),
            kernels=list(kernels),
            strides=list(strides),
            pads=list(pads),
            legacy_pad=legacy_pad,
            group=group,
            **specific_arguments,
        )
        result = g.op("Relu", result) if activation else result
        return from_channels_first(g, _quantize(g, result, Y_scale, Y_zero_point), order, rank)

    onnx_symbolic(f"caffe2::{name}")(convolution)


_register_convolution("Int8Conv", "Conv", activation=False)
_register_convolution("Int8ConvRelu", "Conv", activation=True)
_register_convolution("Int8ConvTranspose", "ConvTranspose", activation=False)


@onnx_symbolic("caffe2::Int8FC")
def int8_fc(
    g: GraphContext,
    X: Value,
    W: Value,
    b: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    data = _dequantize(g, as_matrix(g, X, 1), input_scales[0], input_zero_points[0])
    weight = _dequantize(g, W, input_scales[1], input_zero_points[1])
    # W is [outputs, inputs].
    product = g.op("Gemm", data, weight, _dequantize_bias(g, b, input_scales), transB=1)
    return _quantize(g, product, Y_scale, Y_zero_point)


def _register_sum(names: Sequence[str], activation: bool) -> None:
    @onnx_symbolic([f"caffe2::{name}" for name in names])
    def add(
        g: GraphContext,
        A: Value,
        B: Value,
        input_scales: list[float],
        input_zero_points: list[int],
        Y_scale: float = 1.0,
        Y_zero_point: int = 0,
    ) -> Value:
        first, second = (
            _dequantize(g, value, scale, zero_point)
            for value, scale, zero_point in zip((A, B), input_scales, input_zero_points, strict=True)
        )
        result = g.op("Add", first, second)
        result = g.op("Relu", result) if activation else result
        return _quantize(g, result, Y_scale, Y_zero_point)


_register_sum(("Int8Add", "Int8Sum"), activation=False)
_register_sum(("Int8AddRelu", "Int8SumRelu"), activation=True)


def _register_pooling(name: str, operator: str, activation: bool) -> None:
    average = {"count_include_pad": 1} if operator == "AveragePool" else {}

    def pooling(
        g: GraphContext,
        X: Value,
        input_scales: list[float],
        input_zero_points: list[int],
        kernels: Sequence[int] = (),
        strides: Sequence[int] = (),
        pads: Sequence[int] = (),
        dilations: Sequence[int] = (),
        legacy_pad: int = 0,
        global_pooling: int = 0,
        order: str = "NCHW",
        Y_scale: float = 1.0,
        Y_zero_point: int = 0,
    ) -> Value:
        """QNNPACK's averages count pads, which are the input's zero point."""
        data = _dequantize(g, to_channels_first(g, X, order), input_scales[0], input_zero_points[0])
        result = g.call(
            f"caffe2::{operator}",
            X=data,
            kernels=list(kernels),
            strides=list(strides),
            pads=list(pads),
            dilations=list(dilations),
            legacy_pad=legacy_pad,
            global_pooling=global_pooling,
            **average,
        )
        result = g.op("Relu", result) if activation else result
        return from_channels_first(g, _quantize(g, result, Y_scale, Y_zero_point), order)

    onnx_symbolic(f"caffe2::{name}")(pooling)


_register_pooling("Int8MaxPool", "MaxPool", activation=False)
_register_pooling("Int8MaxPoolRelu", "MaxPool", activation=True)
_register_pooling("Int8AveragePool", "AveragePool", activation=False)
_register_pooling("Int8AveragePoolRelu", "AveragePool", activation=True)


def _register_activation(name: str, apply: Callable[[GraphContext, Value], Value]) -> None:
    def activation(
        g: GraphContext,
        X: Value,
        input_scales: list[float],
        input_zero_points: list[int],
        Y_scale: float = 1.0,
        Y_zero_point: int = 0,
    ) -> Value:
        result = apply(g, _dequantize(g, X, input_scales[0], input_zero_points[0]))
        return _quantize(g, result, Y_scale, Y_zero_point)

    onnx_symbolic(f"caffe2::{name}")(activation)


_register_activation("Int8Relu", lambda g, value: g.op("Relu", value))
_register_activation("Int8Sigmoid", lambda g, value: g.op("Sigmoid", value))
_register_activation("Int8Softmax", lambda g, value: g.call("caffe2::Softmax", X=value))


@onnx_symbolic("caffe2::Int8LeakyRelu")
def int8_leaky_relu(
    g: GraphContext,
    X: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    alpha: float = 0.01,
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    real = _dequantize(g, X, input_scales[0], input_zero_points[0])
    return _quantize(g, g.op("LeakyRelu", real, alpha=alpha), Y_scale, Y_zero_point)


@onnx_symbolic("caffe2::Int8Concat")
def int8_concat(
    g: GraphContext,
    inputs: list[Value],
    input_scales: list[float],
    input_zero_points: list[int],
    axis: int | None = None,
    order: str = "",
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> list[Value]:
    """Without an axis, concatenate along the channels of the order; without an order, along axis 0."""
    _check_same_quantization(g, input_scales, input_zero_points, Y_scale, Y_zero_point)
    if axis is None:
        axis = 0 if not order else 3 if is_channels_last(g, order) else 1
    return g.call_outputs("caffe2::Concat", inputs=inputs, axis=axis)


@onnx_symbolic("caffe2::Int8Reshape")
def int8_reshape(
    g: GraphContext,
    data: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    new_shape: Value | None = None,
    shape: Sequence[int] | None = None,
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> list[Value]:
    _check_same_quantization(g, input_scales[:1], input_zero_points[:1], Y_scale, Y_zero_point)
    return g.call_outputs(
        "caffe2::Reshape", data=data, new_shape=new_shape, shape=None if shape is None else list(shape)
    )


@onnx_symbolic("caffe2::Int8Flatten")
def int8_flatten(
    g: GraphContext,
    input: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    axis: int = 1,
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    _check_same_quantization(g, input_scales, input_zero_points, Y_scale, Y_zero_point)
    return g.call("caffe2::Flatten", input=input, axis=axis)


@onnx_symbolic("caffe2::Int8Transpose")
def int8_transpose(
    g: GraphContext,
    X: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    axes: Sequence[int] = (),
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    _check_same_quantization(g, input_scales, input_zero_points, Y_scale, Y_zero_point)
    return g.call("caffe2::Transpose", X=X, axes=list(axes))


@onnx_symbolic("caffe2::Int8ChannelShuffle")
def int8_channel_shuffle(
    g: GraphContext,
    X: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    group: int = 1,
    order: str = "NCHW",
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    _check_same_quantization(g, input_scales, input_zero_points, Y_scale, Y_zero_point)
    return g.call("caffe2::ChannelShuffle", X=X, group=group, order=order)


@onnx_symbolic("caffe2::Int8Slice")
def int8_slice(
    g: GraphContext,
    data: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    starts: Value | list[int] | None = None,
    ends: Value | list[int] | None = None,
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    _check_same_quantization(g, input_scales[:1], input_zero_points[:1], Y_scale, Y_zero_point)
    return g.call("caffe2::Slice", data=data, starts=starts, ends=ends)


@onnx_symbolic("caffe2::Int8ResizeNearest")
def int8_resize_nearest(
    g: GraphContext,
    X: Value,
    input_scales: list[float],
    input_zero_points: list[int],
    width_scale: float = 1.0,
    height_scale: float = 1.0,
    Y_scale: float = 1.0,
    Y_zero_point: int = 0,
) -> Value:
    """Always NHWC."""
    _check_same_quantization(g, input_scales, input_zero_points, Y_scale, Y_zero_point)
    return g.call(
        "caffe2::ResizeNearest", X=X, width_scale=width_scale, height_scale=height_scale, order="NHWC"
    )

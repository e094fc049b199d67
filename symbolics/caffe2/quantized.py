"""The Int8 operators, emitted as float operators between DequantizeLinear and QuantizeLinear.

A tensor of the Int8 operators is UINT8 (a bias: INT32) with a scale and a zero point. `input_scales` and
`input_zero_points` have those of the inputs, in order; `Y_scale` and `Y_zero_point` those of the result.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...registration import DataType, GraphContext, Value, default_registry, onnx_symbolic
from ..compositions import affine_quantization
from ..compositions.affine_quantization import Grid
from ..compositions.operator_tables import set_parameters
from . import activations, elementwise, images, pooling, shape_operators  # noqa: F401, their functions are called
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
        # The operands may have different scales, so they are added as floats.
        first, second = (
            _dequantize(g, value, scale, zero_point)
            for value, scale, zero_point in zip((A, B), input_scales, input_zero_points, strict=True)
        )
        result = g.op("Add", first, second)
        result = g.op("Relu", result) if activation else result
        return _quantize(g, result, Y_scale, Y_zero_point)


_register_sum(("Int8Add", "Int8Sum"), activation=False)
_register_sum(("Int8AddRelu", "Int8SumRelu"), activation=True)


class _Quantization(NamedTuple):
    """The scales and zero points of an operator's inputs and of its result."""

    input_scales: list[float]
    input_zero_points: list[int]
    scale: float
    zero_point: int


def _register(
    name: str,
    operator: str,
    emit: Callable[[GraphContext, _Quantization, dict[str, Any]], Value | list[Value]],
    without: Sequence[str] = (),
) -> None:
    """Register an Int8 operator with the parameters of a float operator, except for some."""

    def int8(
        g: GraphContext,
        input_scales: list[float],
        input_zero_points: list[int],
        Y_scale: float = 1.0,
        Y_zero_point: int = 0,
        **arguments: Any,
    ) -> Value | list[Value]:
        quantization = _Quantization(input_scales, input_zero_points, Y_scale, Y_zero_point)
        return emit(g, quantization, arguments)

    function = default_registry.versions(f"caffe2::{operator}")[9].function
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in without]
    # The parameters of the float operator have defaults, so those that follow must be keywords.
    *own_parameters, _ = list(inspect.signature(int8).parameters.values())[1:]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own_parameters]
    set_parameters(int8, [*parameters, *keywords])
    onnx_symbolic(f"caffe2::{name}")(int8)


def _register_on_floats(name: str, operator: str, activation: bool = False, **fixed: int) -> None:
    """Register an operator that is computed on dequantized numbers."""

    def emit(g: GraphContext, quantization: _Quantization, arguments: dict[str, Any]) -> Value:
        order = arguments.pop("order", "NCHW")
        integers = to_channels_first(g, arguments.pop("X"), order)
        data = _dequantize(g, integers, quantization.input_scales[0], quantization.input_zero_points[0])
        result = g.call(f"caffe2::{operator}", X=data, **arguments, **fixed)
        result = g.op("Relu", result) if activation else result
        return from_channels_first(
            g, _quantize(g, result, quantization.scale, quantization.zero_point), order
        )

    _register(name, operator, emit, list(fixed))


def _register_on_integers(name: str, operator: str, without: Sequence[str] = (), **fixed: str) -> None:
    """Register an operator that moves integers, whose quantization the result must have."""

    def emit(g: GraphContext, quantization: _Quantization, arguments: dict[str, Any]) -> Value | list[Value]:
        scales, zero_points, scale, zero_point = quantization
        # The other inputs are sizes and positions.
        _check_same_quantization(g, scales[:1], zero_points[:1], scale, zero_point)
        return g.call(f"caffe2::{operator}", **arguments, **fixed)

    _register(name, operator, emit, [*without, *fixed])


# QNNPACK's averages count pads, which are the input's zero point.
_register_on_floats("Int8AveragePool", "AveragePool", count_include_pad=1)
_register_on_floats("Int8AveragePoolRelu", "AveragePool", activation=True, count_include_pad=1)
_register_on_floats("Int8MaxPool", "MaxPool")
_register_on_floats("Int8MaxPoolRelu", "MaxPool", activation=True)
for _operator in ("LeakyRelu", "Relu", "Sigmoid"):
    _register_on_floats(f"Int8{_operator}", _operator)
_register_on_floats("Int8Softmax", "Softmax", axis=1)
for _operator in ("ChannelShuffle", "Flatten", "Reshape", "Slice", "Transpose"):
    _register_on_integers(f"Int8{_operator}", _operator)
# The Int8 images are always NHWC.
_register_on_integers("Int8ResizeNearest", "ResizeNearest", ["scales"], order="NHWC")


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

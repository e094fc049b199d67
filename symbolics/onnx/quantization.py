"""Quantization below the opsets at which its operators, their axes, blocks or types begin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ..compositions.affine_quantization import limits
from ..compositions.size_arithmetic import known_rank
from .support import below

_LARGEST_DIFFERENCE = 255
"""Of two numbers of 8 bits: a quantized number and its zero point."""


def _broadcast_parameter(g: GraphContext, parameter: Value, like: Value, axis: int, block_size: int) -> Value:
    """A scale or zero point in a shape that broadcasts to a tensor: per tensor, per axis or per block."""
    rank = g.rank(parameter)
    if rank == 0:
        return parameter
    tensor_rank = known_rank(g, like)
    dim = axis % tensor_rank if tensor_rank else 0
    if block_size:
        size = g.size(like, dim)
        if isinstance(size, int):
            g.reserve(size)
            return g.op("Gather", parameter, np.arange(size, dtype=np.int64) // block_size, axis=dim)
        numbers = g.call("sym::range", start=0, end=size)
        return g.op("Gather", parameter, g.call("sym::floordiv", a=numbers, b=block_size), axis=dim)
    if rank is None:
        raise g.refuse("the rank of its scale is unknown")
    shape = g.shape(parameter)
    if shape == (1,):
        return g.op("Reshape", parameter, g.constant([], DataType.INT64))
    after = tensor_rank - 1 - dim
    return g.op("Unsqueeze", parameter, axes=list(range(1, after + 1))) if after else parameter


def _quantized_type(g: GraphContext, zero_point: Value | None, output_dtype: int) -> DataType:
    if zero_point is not None:
        dtype = g.dtype(zero_point)
        if dtype is None:
            raise g.refuse("the element type of its zero point is unknown")
        return dtype
    return dtypes.element_type(output_dtype) if output_dtype else DataType.UINT8


def _quantize(g: GraphContext, x: Value, scale: Value, zero_point: Value | None, dtype: DataType) -> Value:
    """`clamp(round(x / scale) + zero_point)`, for a scale and zero point that broadcast."""
    if dtype not in dtypes.INTEGERS:
        raise g.refuse(f"the quantized type {dtype.name} is not supported")
    input_dtype = g.dtype(x)
    if input_dtype is not None and input_dtype not in dtypes.FLOATS:
        x = g.cast(x, DataType.FLOAT)
    wide = g.dtype(scale) or DataType.FLOAT
    quotient = g.cast(g.op("Div", g.cast(x, wide), scale), DataType.FLOAT)
    rounded = g.call("aten::round", self=quotient)
    if zero_point is not None:
        rounded = g.op("Add", rounded, g.cast(zero_point, DataType.FLOAT))
    low, high = limits(dtype)
    return g.cast(g.op("Clip", rounded, min=float(low), max=float(high)), dtype)


@onnx_symbolic("onnx::QuantizeLinear")
def quantize_linear(
    g: GraphContext,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """Composed from arithmetic operators."""
    dtype = _quantized_type(g, y_zero_point, output_dtype)
    if precision and dtypes.element_type(precision) != g.dtype(y_scale):
        # `precision` is the element type of the division.
        y_scale = g.cast(y_scale, dtypes.element_type(precision))
    scale = _broadcast_parameter(g, y_scale, x, axis, block_size)
    zero = None if y_zero_point is None else _broadcast_parameter(g, y_zero_point, x, axis, block_size)
    return _quantize(g, x, scale, zero, dtype)


@below("QuantizeLinear", 13)
def quantize_linear_by_rank(
    g: GraphContext, x: Value, y_scale: Value, y_zero_point: Value | None = None, **attributes: Any
) -> Value:
    """Below 13: one scale."""
    if g.rank(y_scale) == 0 and not attributes.get("block_size") and not attributes.get("precision"):
        zero_point = _zero_point(g, y_scale, y_zero_point, attributes.get("output_dtype", 0))
        return g.op("QuantizeLinear", x, y_scale, zero_point)
    return quantize_linear(g, x, y_scale, y_zero_point, **attributes)


@below("QuantizeLinear", 21)
def quantize_linear_13(
    g: GraphContext,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    output_dtype: int = 0,
    **attributes: Any,
) -> Value:
    """Below 21 the zero point determines the type."""
    zero_point = _zero_point(g, y_scale, y_zero_point, output_dtype)
    result: Value = g.op("QuantizeLinear", x, y_scale, zero_point, **attributes)
    return result


def _zero_point(g: GraphContext, scale: Value, zero_point: Value | None, output_dtype: int) -> Value | None:
    if zero_point is not None or not output_dtype or dtypes.element_type(output_dtype) == DataType.UINT8:
        return zero_point
    # A zero point of the requested type and of the scale's shape tells old versions the type.
    zeros = g.cast(g.op("Mul", scale, 0.0), DataType.INT32)
    return g.cast(zeros, dtypes.element_type(output_dtype))


def _dequantize(g: GraphContext, x: Value, scale: Value, zero_point: Value | None, wide: DataType) -> Value:
    # The result of an operator of another domain may have no known type; the schema asks for integers.
    if g.dtype(x) not in (None, *dtypes.INTEGERS):
        raise g.refuse(f"the quantized type {g.dtype(x)} is not supported")
    # INT32 holds the difference of any two 8-bit or 16-bit integers.
    exact = g.cast(x, DataType.INT32)
    if zero_point is not None:
        exact = g.op("Sub", exact, g.cast(zero_point, DataType.INT32))
    return g.cast(g.op("Mul", g.cast(exact, DataType.FLOAT), g.cast(scale, DataType.FLOAT)), wide)


@onnx_symbolic("onnx::DequantizeLinear")
def dequantize_linear(
    g: GraphContext,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """Composed from arithmetic operators."""
    scale = _broadcast_parameter(g, x_scale, x, axis, block_size)
    zero = None if x_zero_point is None else _broadcast_parameter(g, x_zero_point, x, axis, block_size)
    wide = dtypes.element_type(output_dtype) if output_dtype else g.dtype(x_scale) or DataType.FLOAT
    return _dequantize(g, x, scale, zero, wide)


@below("DequantizeLinear", 13)
def dequantize_linear_by_rank(
    g: GraphContext, x: Value, x_scale: Value, x_zero_point: Value | None = None, **attributes: Any
) -> Value:
    """Below 13: one scale."""
    output_dtype = attributes.get("output_dtype", 0)
    same_dtype = not output_dtype or dtypes.element_type(output_dtype) == g.dtype(x_scale)
    if g.rank(x_scale) == 0 and not attributes.get("block_size") and same_dtype:
        return g.op("DequantizeLinear", x, x_scale, x_zero_point)
    return dequantize_linear(g, x, x_scale, x_zero_point, **attributes)


def _subtract_zero_point(g: GraphContext, value: Value, zero_point: Value | None, axis: int) -> Value:
    """Quantized numbers minus their zero point, in INT32; the zero point is per axis or per tensor."""
    exact = g.cast(value, DataType.INT32)
    if zero_point is None:
        return exact
    zero = g.cast(zero_point, DataType.INT32)
    # A number needs no rank: those of results of other domains' operators may be unknown.
    is_per_axis = g.rank(zero_point) == 1 and g.shape(zero_point) != (1,)
    if is_per_axis and (tensor_rank := known_rank(g, value)) > 1:
        after = tensor_rank - 1 - axis % tensor_rank
        zero = g.op("Unsqueeze", zero, axes=list(range(1, after + 1))) if after else zero
    return g.op("Sub", exact, zero)


@onnx_symbolic("onnx::DynamicQuantizeLinear")
def dynamic_quantize_linear(g: GraphContext, x: Value) -> list[Value]:
    """Below 11: 255 steps between the smallest and the largest element, with 0 in the range.

    The scale of a tensor of zeros is 1, as in onnxruntime.
    """
    low = g.op("Min", g.op("ReduceMin", x, keepdims=0), 0.0)
    span = g.op("Sub", g.op("Max", g.op("ReduceMax", x, keepdims=0), 0.0), low)
    is_zero = g.op("Not", g.op("Greater", span, 0.0))
    scale = g.op("Add", g.op("Div", span, 255.0), g.cast(is_zero, DataType.FLOAT))
    steps = g.op("Clip", g.op("Sub", 0.0, g.op("Div", low, scale)), min=0.0, max=255.0)
    zero_point = g.cast(g.call("aten::round", self=steps), DataType.UINT8)
    return [g.op("QuantizeLinear", x, scale, zero_point), scale, zero_point]


@onnx_symbolic("onnx::MatMulInteger")
def mat_mul_integer(
    g: GraphContext, A: Value, B: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """Below 10: computed in INT32."""
    return g.op(
        "MatMul", _subtract_zero_point(g, A, a_zero_point, -2), _subtract_zero_point(g, B, b_zero_point, -1)
    )


@onnx_symbolic("onnx::QLinearMatMul")
def q_linear_mat_mul(
    g: GraphContext,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Value:
    """Below 10: multiplies integers, and combines the scales."""
    product = g.op(
        "MatMul", _subtract_zero_point(g, a, a_zero_point, -2), _subtract_zero_point(g, b, b_zero_point, -1)
    )
    scale = g.op("Div", g.op("Mul", a_scale, b_scale), y_scale)
    real = g.op("Mul", g.cast(product, DataType.FLOAT), g.cast(scale, DataType.FLOAT))
    dtype = _quantized_type(g, y_zero_point, 0)
    return _quantize(g, real, g.constant(1.0), y_zero_point, dtype)


def _convolve_integers(
    g: GraphContext,
    x: Value,
    w: Value,
    x_zero_point: Value | None,
    w_zero_point: Value | None,
    attributes: dict[str, Any],
) -> Value:
    """A convolution of integers in FLOAT, which represents sums below 2**24 exactly.

    If sums may be larger, the upper four bits of the kernel and the lower four are convolved apart.
    """
    shape = g.shape(w)
    if shape is None or not all(isinstance(size, int) for size in shape):
        raise g.refuse("the size of a quantized kernel is unknown", first_opset=10)
    taps = int(np.prod([size for size in shape[1:] if isinstance(size, int)], dtype=np.int64))
    weights = g.constant_value(w)
    zeros = np.zeros(1, np.int8) if w_zero_point is None else g.constant_value(w_zero_point)
    if weights is None or zeros is None or not weights.size:
        numbers, *parts = (np.full((1, taps), size) for size in (_LARGEST_DIFFERENCE, 16, 15))
    else:
        numbers = weights.reshape(len(weights), -1).astype(np.int64) - zeros.reshape(-1, 1)
        parts = [numbers // 16, numbers % 16]
    data = g.cast(_subtract_zero_point(g, x, x_zero_point, 1), DataType.FLOAT)
    kernel = g.cast(_subtract_zero_point(g, w, w_zero_point, 0), DataType.FLOAT)

    def fits(weights: np.ndarray) -> bool:
        """Whether sums of products of any data with such weights are exact."""
        return bool(np.abs(weights).sum(1).max(initial=0) * _LARGEST_DIFFERENCE < 2**24)

    def convolve(part: Value) -> Value:
        return g.cast(g.op("Conv", data, part, **attributes), DataType.INT32)

    if fits(numbers):
        return convolve(kernel)
    if not all(map(fits, parts)):
        raise g.refuse("the sums of this quantized convolution may be too large for FLOAT", first_opset=10)
    upper = g.op("Floor", g.op("Div", kernel, 16.0))
    lower = g.op("Sub", kernel, g.op("Mul", upper, 16.0))
    return g.op("Add", g.op("Mul", convolve(upper), 16), convolve(lower))


@onnx_symbolic("onnx::ConvInteger")
def conv_integer(
    g: GraphContext,
    x: Value,
    w: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    **attributes: Any,
) -> Value:
    """Below 10."""
    return _convolve_integers(g, x, w, x_zero_point, w_zero_point, attributes)


@onnx_symbolic("onnx::QLinearConv")
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
    **attributes: Any,
) -> Value:
    """Below 10."""
    sums = _convolve_integers(g, x, w, x_zero_point, w_zero_point, attributes)
    rank = known_rank(g, x)

    def column(parameter: Value) -> Value:
        is_number = g.rank(parameter) == 0 or g.shape(parameter) == (1,)
        return parameter if is_number else g.op("Unsqueeze", parameter, axes=list(range(1, rank - 1)))

    if B is not None:
        sums = g.op("Add", sums, g.op("Unsqueeze", B, axes=list(range(1, rank - 1))))
    scale = g.op("Div", g.op("Mul", x_scale, column(w_scale)), y_scale)
    real = g.op("Mul", g.cast(sums, DataType.FLOAT), scale)
    return _quantize(g, real, g.constant(1.0), y_zero_point, _quantized_type(g, y_zero_point, 0))


@onnx_symbolic("form::DequantizeLinear.rounded")
def round_floats(
    g: GraphContext,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    axis: int = 1,
    block_size: int = 0,
) -> Value:
    """Floats that are quantized and read again: the rounded quotients within the limits of the type."""
    producer, dtype = x.producer(), g.dtype(x)
    if producer is None or producer.op_type != "QuantizeLinear" or dtype is None or block_size:
        raise g.refuse("only numbers that were quantized without blocks are read again")
    data, *parameters = [*producer.inputs, None][:3]
    other_axis = producer.attributes.get("axis")
    zero_point = np.zeros((), int) if x_zero_point is None else g.constant_value(x_zero_point)
    arrays = [
        [None if value is None else g.constant_value(value) for value in pair]
        for pair in zip(parameters, (x_scale, x_zero_point), strict=True)
    ]
    same = parameters == [x_scale, x_zero_point] or all(
        first is not None and second is not None and np.array_equal(first, second) for first, second in arrays
    )
    if data is None or not same or (other_axis is not None and other_axis.value != axis):
        raise g.refuse("the scales or zero points differ")
    scale = _broadcast_parameter(g, x_scale, data, axis, 0)
    rounded = g.op("Round", g.op("Div", data, scale))
    low, high = (float(limit) for limit in limits(dtype))
    if x_zero_point is None or (zero_point is not None and not zero_point.any()):
        return g.op("Mul", g.op("Clip", rounded, min=low, max=high), scale)
    if zero_point is None or len({*zero_point.reshape(-1)}) > 1:
        zeros = g.cast(_broadcast_parameter(g, x_zero_point, data, axis, 0), DataType.FLOAT)
        shifted = g.op("Clip", g.op("Add", rounded, zeros), min=low, max=high)
        return g.op("Mul", g.op("Sub", shifted, zeros), scale)
    zero = float(zero_point.reshape(-1)[0])
    return g.op("Mul", g.op("Clip", rounded, min=low - zero, max=high - zero), scale)

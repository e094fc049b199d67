"""Products of integers that onnxruntime's dynamic quantization writes, with FLOAT results."""

from ...registration import DataType, GraphContext, Value
from . import microsoft_symbolic


def multiply_to_float(
    g: GraphContext,
    first: Value,
    second: Value,
    scales: tuple[Value, Value],
    zero_points: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    """The product of two quantized tensors, in the element type of their scales."""
    product = g.op("MatMulInteger", first, second, *zero_points)
    # The scales are multiplied first, as in the kernel; one of them may have an element for each column.
    real = g.op("Mul", g.cast(product, g.dtype(scales[0]) or DataType.FLOAT), g.op("Mul", *scales))
    return real if bias is None else g.op("Add", real, bias)


@microsoft_symbolic("MatMulIntegerToFloat")
def mat_mul_integer_to_float(
    g: GraphContext,
    A: Value,
    B: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    return multiply_to_float(g, A, B, (a_scale, b_scale), (a_zero_point, b_zero_point), bias)


@microsoft_symbolic("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(
    g: GraphContext,
    A: Value,
    B: Value,
    b_scale: Value,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    quantized, scale, zero_point = g.op("DynamicQuantizeLinear", A, outputs=3)
    return multiply_to_float(g, quantized, B, (scale, b_scale), (zero_point, b_zero_point), bias)

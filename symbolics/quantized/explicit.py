"""The `quantized_decomposed` dialect: the explicit quantization operators of PT2E quantization.

The semantics are those of torch/ao/quantization/fx/_decomposed.py.
"""

from __future__ import annotations

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ..compositions.affine_quantization import (
    Grid,
    align_parameter,
    dequantize,
    emit_promoted,
    fake_quantize,
    is_zero,
    number,
    quantize,
    wraps_around,
)


@onnx_symbolic("quantized_decomposed::quantize_per_tensor")
def quantize_per_tensor(
    g: GraphContext,
    input: Value,
    scale: Value | float,
    zero_point: Value | int,
    quant_min: Value | int,
    quant_max: Value | int,
    dtype: DataType,
) -> Value:
    grid = Grid(scale, zero_point, number(g, quant_min), number(g, quant_max))
    return quantize(g, input, grid, dtype)


@onnx_symbolic("quantized_decomposed::dequantize_per_tensor")
def dequantize_per_tensor(
    g: GraphContext,
    input: Value,
    scale: Value | float,
    zero_point: Value | int,
    quant_min: Value | int,
    quant_max: Value | int,
    dtype: DataType,
    out_dtype: DataType | None = None,
) -> Value:
    grid = Grid(scale, zero_point, number(g, quant_min), number(g, quant_max))
    return dequantize(g, input, grid, out_dtype or DataType.FLOAT)


@onnx_symbolic("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
) -> Value:
    grid = Grid(scales, zero_points, quant_min, quant_max, axis)
    return quantize(g, input, grid, dtype)


@onnx_symbolic("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
    out_dtype: DataType | None = None,
) -> Value:
    grid = Grid(scales, zero_points, quant_min, quant_max, axis)
    return _dequantize_channels(g, input, zero_points, grid, out_dtype or DataType.FLOAT)


def _dequantize_channels(
    g: GraphContext, input: Value, zero_points: Value | None, grid: Grid, out_dtype: DataType
) -> Value:
    """Dequantize, with torch's promotion if integers are wide or wrap, or scales are 16-bit floats."""
    assert isinstance(grid.scale, Value)
    wide_scales = g.dtype(grid.scale) in (DataType.FLOAT, DataType.DOUBLE)
    small = g.dtype(input) != DataType.INT32 or is_zero(g, zero_points)
    # DequantizeLinear computes in FLOAT, without torch's promotion.
    if wide_scales and small and not wraps_around(g, zero_points):
        return dequantize(g, input, grid, out_dtype)
    rank, steps = g.rank(input), input
    if zero_points is not None and not is_zero(g, zero_points):
        steps = emit_promoted(g, "Sub", input, align_parameter(g, zero_points, grid, rank))
    return g.cast(emit_promoted(g, "Mul", steps, align_parameter(g, grid.scale, grid, rank)), out_dtype)


@onnx_symbolic("quantized_decomposed::fake_quant_per_channel")
def fake_quant_per_channel(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Value:
    if g.dtype(zero_points) in dtypes.FLOATS:
        zero_points = g.cast(zero_points, DataType.INT32)
    return fake_quantize(g, input, Grid(scales, zero_points, quant_min, quant_max, axis))


@onnx_symbolic("quantized_decomposed::convert_element_type")
def convert_element_type(g: GraphContext, input: Value, dtype: DataType) -> Value:
    return g.cast(input, dtype)

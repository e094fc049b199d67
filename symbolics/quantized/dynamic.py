"""The `quantized_decomposed` operators with scales chosen at run time, or per token or group.

The semantics are those of torch/ao/quantization/fx/_decomposed.py and of `determine_qparams` beside it.
"""

from __future__ import annotations

import numpy as np

from ...registration import DataType, GraphContext, Value, facts_of, onnx_symbolic, state
from ..compositions.affine_quantization import (
    Grid,
    clamp,
    emit_inverse,
    emit_promoted,
    is_zero,
    limits,
    wraps_around,
)
from ..compositions.block_quantization import dequantize_groups

_EXACT_IN_FLOAT = 2**24
_EPSILON = float(np.finfo(np.float32).eps)


def _range(g: GraphContext, input: Value) -> tuple[Value, Value]:
    """The lowest and highest element, 0 included."""
    lowest, highest = (g.op(op_type, input, keepdims=0) for op_type in ("ReduceMin", "ReduceMax"))
    return g.op("Min", lowest, 0.0), g.op("Max", highest, 0.0)


@onnx_symbolic("quantized_decomposed::choose_qparams")
def choose_qparams(
    g: GraphContext, input: Value, quant_min: int, quant_max: int, eps: float, dtype: DataType
) -> tuple[Value, Value]:
    """Divides the range in the input's element type, and computes everything else in FLOAT."""
    if max(abs(quant_min), abs(quant_max)) > _EXACT_IN_FLOAT:
        raise g.refuse(
            "a range of more than 24 bits is not supported: its zero points are not exact in float arithmetic"
        )
    lowest, highest = _range(g, input)
    step = g.op("Div", g.op("Sub", highest, lowest), float(quant_max - quant_min))
    scale = g.op("Max", g.cast(step, DataType.FLOAT), eps)
    steps = g.call("aten::round", g.op("Div", g.cast(lowest, DataType.FLOAT), scale))
    zero_point = g.op("Sub", g.constant(float(quant_min)), steps)
    clipped = g.op("Clip", zero_point, min=float(quant_min), max=float(quant_max))
    scale, zero_point = g.cast(scale, DataType.DOUBLE), g.cast(clipped, DataType.INT64)
    # torch declares tensors of one element.
    scale, zero_point = g.op("Unsqueeze", scale, axes=[0]), g.op("Unsqueeze", zero_point, axes=[0])
    return scale, state(zero_point, bounds=(quant_min, quant_max))


@onnx_symbolic("quantized_decomposed::choose_qparams_symmetric")
def choose_qparams_symmetric(
    g: GraphContext, input: Value, quant_min: int, quant_max: int, eps: float, dtype: DataType
) -> tuple[Value, Value]:
    """The zero point is 0, or 128 for UINT8."""
    lowest, highest = _range(g, input)
    farthest = g.op("Max", g.op("Neg", lowest), highest)
    # Half of the range for each sign.
    step = g.op("Div", farthest, (quant_max - quant_min) / 2)
    scale = g.op("Max", g.cast(step, DataType.FLOAT), eps)
    zero_point = g.constant(np.array([128 if dtype == DataType.UINT8 else 0], dtype=np.int64))
    return g.op("Unsqueeze", g.cast(scale, DataType.DOUBLE), axes=[0]), zero_point


def _bound_value(g: GraphContext, name: str, value: Value, bound: float) -> Value:
    """The maximum or minimum with a number, also at opsets where Max and Min do not broadcast."""
    return g.call(f"aten::{name}", value, g.constant(bound, g.dtype(value)))


@onnx_symbolic("quantized_decomposed::choose_qparams_per_token")
def choose_qparams_per_token(g: GraphContext, input: Value, dtype: DataType) -> tuple[Value, Value]:
    """Computed in FLOAT; the results are DOUBLE and INT64, as torch declares."""
    if dtype != DataType.INT8:
        raise g.refuse(f"the quantized type must be INT8, not {dtype.name}")
    farthest = g.op("ReduceMax", g.op("Abs", input), axes=[-1], keepdims=1)
    if g.dtype(farthest) == DataType.FLOAT16:
        farthest = g.cast(farthest, DataType.FLOAT)
    scales = g.op("Div", _bound_value(g, "maximum", farthest, 1e-5), 127.0)
    zeros = g.op("Expand", g.constant(0), g.op("Shape", scales))
    declared = g.cast(scales, DataType.DOUBLE)
    return declared if declared is scales else state(declared, computed=scales), zeros


@onnx_symbolic(
    [
        "quantized_decomposed::choose_qparams_per_token_asymmetric",
        "quantized_decomposed::_choose_qparams_per_token_asymmetric_impl",
    ]
)
def choose_qparams_per_token_asymmetric(
    g: GraphContext, input: Value, dtype: DataType
) -> tuple[Value, Value]:
    """Always INT8, whatever `dtype` is, as in torch."""
    low, high = limits(DataType.INT8)
    lowest = _bound_value(g, "minimum", g.op("ReduceMin", input, axes=[-1], keepdims=1), 0.0)
    highest = _bound_value(g, "maximum", g.op("ReduceMax", input, axes=[-1], keepdims=1), 0.0)
    step = g.op("Div", g.op("Sub", highest, lowest), float(high - low))
    scale = _bound_value(g, "maximum", step, _EPSILON)
    below, above = g.op("Div", lowest, scale), g.op("Div", highest, scale)
    # As in torch: the zero point is taken from the end of the range that is represented with less error.
    error = g.op("Add", g.op("Add", below, float(low)), g.op("Add", above, float(high)))
    candidates = (
        g.op("Sub", g.constant(low, g.dtype(below)), below),
        g.op("Sub", g.constant(high, g.dtype(above)), above),
    )
    from_below, from_above = (g.cast(candidate, DataType.FLOAT) for candidate in candidates)
    zero_point = g.call("aten::where", g.op("Greater", error, 0.0), from_below, from_above)
    rounded = g.call("aten::round", g.op("Clip", zero_point, min=float(low), max=float(high)))
    return g.cast(scale, DataType.DOUBLE), g.cast(rounded, DataType.INT64)


def _as_computed(value: Value) -> Value:
    """Scales in the element type that torch computes, which differs from the declared one."""
    return facts_of(value).computed or value


def _quantize_with(
    g: GraphContext, input: Value, scales: Value, zero_points: Value, bounds: tuple[int, int], dtype: DataType
) -> Value:
    """`clamp(round(input / scale + zero_point))`: the zero point is added before rounding."""
    scaled = emit_promoted(g, "Mul", input, emit_inverse(g, scales))
    if not is_zero(g, zero_points):
        scaled = emit_promoted(g, "Add", scaled, zero_points)
    low, high = bounds
    levels = g.call("aten::round", scaled)
    # onnxruntime's earliest Clip takes only FLOAT.
    if max(abs(low), abs(high)) <= _EXACT_IN_FLOAT:
        levels = g.cast(levels, DataType.FLOAT)
    return g.cast(clamp(g, levels, low, high), dtype)


def _difference(g: GraphContext, input: Value, zero_points: Value | None) -> Value:
    return (
        input
        if zero_points is None or is_zero(g, zero_points)
        else emit_promoted(g, "Sub", input, zero_points)
    )


@onnx_symbolic("quantized_decomposed::quantize_per_token")
def quantize_per_token(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
) -> Value:
    return _quantize_with(
        g, input, _as_computed(scales), _as_computed(zero_points), (quant_min, quant_max), dtype
    )


@onnx_symbolic("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
    output_dtype: DataType = DataType.FLOAT,
) -> Value:
    steps = _difference(g, input, _as_computed(zero_points))
    return g.cast(emit_promoted(g, "Mul", steps, _as_computed(scales)), output_dtype)


def _group_size(g: GraphContext, input: Value, scales: Value, group_size: int) -> int:
    """The size of a group; a whole row if rows are shorter than a group and have one scale."""
    shape, scales_shape = g.shape(input), g.shape(scales)
    if shape is None or len(shape) != 2 or not isinstance(shape[1], int):
        raise g.refuse("the number of columns must be known for quantization in groups")
    if group_size > shape[1] and scales_shape is not None and scales_shape[-1] == 1:
        return shape[1]
    return group_size


def _column(g: GraphContext, parameter: Value) -> Value:
    return g.op("Reshape", parameter, shape=[-1, 1])


@onnx_symbolic("quantized_decomposed::quantize_per_channel_group")
def quantize_per_channel_group(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
    group_size: int = 128,
) -> Value:
    groups = g.op("Reshape", input, shape=[-1, _group_size(g, input, scales, group_size)])
    zero_points = zero_points if is_zero(g, zero_points) else _column(g, zero_points)
    result = _quantize_with(g, groups, _column(g, scales), zero_points, (quant_min, quant_max), dtype)
    return g.op("Reshape", result, g.op("Shape", input))


@onnx_symbolic("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_channel_group(
    g: GraphContext,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: DataType,
    group_size: int = 128,
    output_dtype: DataType = DataType.FLOAT,
) -> Value:
    group_size = _group_size(g, input, scales, group_size)
    grid = Grid(scales, zero_points, quant_min, quant_max, axis=1, block=group_size)
    if g.rank(scales) == 2 and not wraps_around(g, zero_points):
        grouped = dequantize_groups(g, input, grid, output_dtype)
        if grouped is not None:
            return grouped
    groups = g.op("Reshape", input, shape=[-1, group_size])
    shift = None if zero_points is None or is_zero(g, zero_points) else _column(g, zero_points)
    product = emit_promoted(g, "Mul", _difference(g, groups, shift), _column(g, scales))
    return g.cast(g.op("Reshape", product, g.op("Shape", input)), output_dtype)

"""Fake quantization: rounding to quantized values, as QuantizeLinear and DequantizeLinear."""

import numpy as np

from .....registration import GraphContext, Value, dtypes, onnx_symbolic
from ....compositions.affine_quantization import Grid, fake_quantize, is_within, number


def _is_on(g: GraphContext, switch: Value) -> bool:
    state = number(g, switch)
    if isinstance(state, Value):
        raise g.refuse("fake_quant_on must be constant")
    return bool(state)


def _per_tensor(scale: Value | float, zero_point: Value | int, quant_min: int, quant_max: int) -> Grid:
    """ATen stores the scale in single precision."""
    scale = scale if isinstance(scale, Value) else float(np.float32(scale))
    return Grid(scale, zero_point, quant_min, quant_max)


def _per_channel(
    g: GraphContext, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Grid:
    """A float zero point is added before rounding."""
    rounded_last = g.dtype(zero_point) in dtypes.FLOATS
    return Grid(scale, zero_point, quant_min, quant_max, axis, rounded_last=rounded_last)


def _register_per_tensor(name: str, with_mask: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def per_tensor(
        g: GraphContext,
        self: Value,
        scale: Value | float,
        zero_point: Value | int,
        quant_min: int,
        quant_max: int,
    ) -> Value | tuple[Value, Value]:
        grid = _per_tensor(scale, zero_point, quant_min, quant_max)
        result = fake_quantize(g, self, grid)
        return (result, is_within(g, self, grid)) if with_mask else result


_register_per_tensor("fake_quantize_per_tensor_affine", with_mask=False)
_register_per_tensor("fake_quantize_per_tensor_affine_cachemask", with_mask=True)


@onnx_symbolic("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def _fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    g: GraphContext,
    self: Value,
    scale: Value,
    zero_point: Value,
    fake_quant_enabled: Value,
    quant_min: int,
    quant_max: int,
) -> tuple[Value, Value]:
    if not _is_on(g, fake_quant_enabled):
        # Nothing is clamped, so the mask is true everywhere.
        return self, g.op("Expand", g.constant(True), g.op("Shape", self))
    grid = _per_tensor(scale, zero_point, quant_min, quant_max)
    return fake_quantize(g, self, grid), is_within(g, self, grid)


def _register_per_channel(name: str, with_mask: bool) -> None:
    @onnx_symbolic(f"aten::{name}")
    def per_channel(
        g: GraphContext,
        self: Value,
        scale: Value,
        zero_point: Value,
        axis: int,
        quant_min: int,
        quant_max: int,
    ) -> Value | tuple[Value, Value]:
        grid = _per_channel(g, scale, zero_point, axis, quant_min, quant_max)
        result = fake_quantize(g, self, grid)
        return (result, is_within(g, self, grid)) if with_mask else result


_register_per_channel("fake_quantize_per_channel_affine", with_mask=False)
_register_per_channel("fake_quantize_per_channel_affine_cachemask", with_mask=True)


def _round_zero_point(g: GraphContext, zero_point: Value, quant_min: int, quant_max: int) -> Value:
    """A learned float zero point is rounded, then clamped to the range."""
    # A constant is rounded at export, so that the file holds an integer zero point.
    array = g.constant_value(zero_point)
    if array is not None:
        return g.constant(array.round().clip(quant_min, quant_max))
    rounded = g.call("aten::round", zero_point)
    return g.op("Clip", rounded, min=float(quant_min), max=float(quant_max))


@onnx_symbolic("aten::_fake_quantize_learnable_per_tensor_affine")
def _fake_quantize_learnable_per_tensor_affine(
    g: GraphContext, self: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int
) -> Value:
    return fake_quantize(
        g, self, Grid(scale, _round_zero_point(g, zero_point, quant_min, quant_max), quant_min, quant_max)
    )


@onnx_symbolic("aten::_fake_quantize_learnable_per_channel_affine")
def _fake_quantize_learnable_per_channel_affine(
    g: GraphContext, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    rounded = _round_zero_point(g, zero_point, quant_min, quant_max)
    return fake_quantize(g, self, Grid(scale, rounded, quant_min, quant_max, axis))


@onnx_symbolic("aten::fused_moving_avg_obs_fake_quant")
def fused_moving_avg_obs_fake_quant(
    g: GraphContext,
    self: Value,
    observer_on: Value,
    fake_quant_on: Value,
    running_min: Value,
    running_max: Value,
    scale: Value,
    zero_point: Value,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Value:
    """With the observer disabled, as in inference: fake quantization with the observed parameters."""
    if _is_on(g, observer_on):
        raise g.refuse(
            "its observer is enabled, and would change buffers: call "
            "model.apply(torch.ao.quantization.disable_observer)"
        )
    if not _is_on(g, fake_quant_on):
        return self
    if per_row_fake_quant:
        grid = _per_channel(g, scale, zero_point, ch_axis, quant_min, quant_max)
    else:
        grid = _per_tensor(scale, zero_point, quant_min, quant_max)
    return fake_quantize(g, self, grid)

"""torchao's affine quantization in blocks, from torchao/quantization/quant_primitives.py.

A tensor is divided into blocks of `block_size`, one number per dimension. Each block has a scale and a zero
point: per tensor, per row or token, per channel, or per group of a row.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from ...registration import DataType, GraphContext, Number, Value, dtypes, onnx_symbolic, state
from ..compositions.affine_quantization import (
    Grid,
    clamp,
    dequantize,
    emit_inverse,
    emit_promoted,
    is_zero,
    limits,
    quantize,
)
from ..compositions.block_quantization import dequantize_groups
from ..compositions.size_arithmetic import known_rank

_SMALLEST_NORMAL = {
    DataType.FLOAT: float(np.finfo(np.float32).tiny),
    DataType.FLOAT16: float(np.finfo(np.float16).tiny),
    DataType.BFLOAT16: float(np.finfo(np.float32).tiny),
    DataType.DOUBLE: float(np.finfo(np.float64).tiny),
}


@dataclasses.dataclass(frozen=True)
class _BlockLayout:
    """The blocks of a tensor.

    Attributes:
        divided_shape: the shape of the tensor with two dimensions, blocks and their elements, for each one
            that is divided into blocks of several elements.
        inner_axes: the dimensions of that shape that lie within a block.
        counts: the number of blocks in each dimension of the tensor.
        is_divided: whether the shape differs from that of the tensor.
        groups: the size of a block, if blocks are groups of the last dimension alone.
        channel: the dimension whose indices have a block each, if all others lie within a block.
    """

    divided_shape: list[int | Value]
    inner_axes: list[int]
    counts: list[int | Value]
    is_divided: bool
    groups: int | None
    channel: int | None

    @functools.cached_property
    def parameter_shape(self) -> list[int | Value]:
        """The shape in which a scale or zero point broadcasts against the divided shape."""
        return [1 if axis in self.inner_axes else size for axis, size in enumerate(self.divided_shape)]


def _divide(g: GraphContext, input: Value, block_size: Sequence[int | Value]) -> _BlockLayout:
    shape: list[int | Value] = []
    inner: list[int] = []
    counts: list[int | Value] = []
    single, divided = [], []
    for axis, block in enumerate(block_size):
        size = g.size(input, axis)
        if isinstance(block, int) and block == 1 and size != 1:
            single.append(axis)
            shape.append(size)
            counts.append(size)
        elif isinstance(block, int) and size == block:
            inner.append(len(shape))
            shape.append(size)
            counts.append(1)
        else:
            divided.append(axis)
            if isinstance(size, int) and isinstance(block, int):
                count: int | Value = size // block
            else:
                count = g.call("sym::floordiv", a=size, b=block)
            inner.append(len(shape) + 1)
            shape += [count, block]
            counts.append(count)
    last = len(block_size) - 1
    last_block = block_size[last] if block_size else None
    is_grouped = divided == [last] and len(single) == last
    groups = last_block if is_grouped and isinstance(last_block, int) else None
    channel = single[0] if len(single) == 1 and not divided else None
    return _BlockLayout(shape, inner, counts, bool(divided), groups, channel)


def _view(g: GraphContext, value: Value, shape: Sequence[int | Value]) -> Value:
    """A tensor in another shape; a constant zero point stays a constant, so that its range is known."""
    if g.shape(value) == tuple(shape):
        return value
    array = g.constant_value(value)
    if array is not None and g.dtype(value) in dtypes.INTEGERS and all(isinstance(n, int) for n in shape):
        return g.constant(array.reshape([n for n in shape if isinstance(n, int)]))
    return g.op("Reshape", value, shape=g.stack(shape))


def _range_of(dtype: DataType, quant_min: Number | None, quant_max: Number | None) -> tuple[int, int]:
    low, high = limits(dtype)
    return int(low if quant_min is None else quant_min), int(high if quant_max is None else quant_max)


def _is_one_block(g: GraphContext, scale: Value) -> bool:
    shape = g.shape(scale)
    return shape is not None and all(size == 1 for size in shape)


@onnx_symbolic("torchao::quantize_affine")
def quantize_affine(
    g: GraphContext,
    input: Value,
    block_size: list[int | Value],
    scale: Value,
    zero_point: Value | None,
    output_dtype: DataType,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
) -> Value:
    """`clamp(round(input * (1 / scale)) + zero_point)`."""
    if output_dtype not in dtypes.INTEGERS:
        raise g.refuse(f"the quantized type {output_dtype.name} is not supported")
    low, high = _range_of(output_dtype, quant_min, quant_max)
    if _is_one_block(g, scale):
        return quantize(g, input, Grid(scale, zero_point, low, high), output_dtype)
    blocks = _divide(g, input, block_size)
    tensor = _view(g, input, blocks.divided_shape) if blocks.is_divided else input
    step = _view(g, scale, blocks.parameter_shape)
    # QuantizeLinear would divide, and round some ties to the other integer.
    levels = g.call("aten::round", emit_promoted(g, "Mul", tensor, emit_inverse(g, step)))
    if zero_point is not None and not is_zero(g, zero_point):
        levels = emit_promoted(g, "Add", levels, _view(g, zero_point, blocks.parameter_shape))
    # Clip of half precision begins later than that of FLOAT in onnxruntime.
    integers = g.cast(clamp(g, g.cast(levels, DataType.FLOAT), low, high), output_dtype)
    return g.op("Reshape", integers, g.op("Shape", input)) if blocks.is_divided else integers


@onnx_symbolic("torchao::dequantize_affine")
def dequantize_affine(
    g: GraphContext,
    input: Value,
    block_size: list[int | Value],
    scale: Value,
    zero_point: Value | None,
    input_dtype: DataType,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
    output_dtype: DataType = DataType.FLOAT,
) -> Value:
    """`(input - zero_point) * scale`, with DequantizeLinear per tensor, channel or group if it has them."""
    if is_zero(g, zero_point):
        zero_point = None
    low, high = _range_of(input_dtype, quant_min, quant_max)
    if _is_one_block(g, scale):
        return dequantize(g, input, Grid(scale, zero_point, low, high), output_dtype)
    blocks = _divide(g, input, block_size)
    if blocks.channel is not None:
        channels = [blocks.counts[blocks.channel]]
        zeros = None if zero_point is None else _view(g, zero_point, channels)
        grid = Grid(_view(g, scale, channels), zeros, low, high, blocks.channel)
        return dequantize(g, input, grid, output_dtype)
    if blocks.groups is not None and known_rank(g, input) == 2:
        grid = Grid(
            _view(g, scale, blocks.counts),
            None if zero_point is None else _view(g, zero_point, blocks.counts),
            low,
            high,
            axis=1,
            block=blocks.groups,
        )
        grouped = dequantize_groups(g, input, grid, output_dtype)
        if grouped is not None:
            return grouped
    tensor = g.cast(_view(g, input, blocks.divided_shape) if blocks.is_divided else input, output_dtype)
    if zero_point is not None:
        zeros = g.cast(_view(g, zero_point, blocks.parameter_shape), output_dtype)
        tensor = g.op("Sub", tensor, zeros)
    product = emit_promoted(g, "Mul", tensor, _view(g, scale, blocks.parameter_shape))
    result = g.op("Reshape", product, g.op("Shape", input)) if blocks.is_divided else product
    return g.cast(result, output_dtype)


@onnx_symbolic("torchao::choose_qparams_affine")
def choose_qparams_affine(
    g: GraphContext,
    input: Value,
    mapping_type: str,
    block_size: list[int | Value],
    target_dtype: DataType,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
    eps: float | None = None,
    scale_dtype: DataType | None = None,
    zero_point_dtype: DataType | None = None,
    keepdim: bool = False,
) -> tuple[Value, Value]:
    """The scale and zero point of each block, computed in the element type of the input."""
    dtype = g.dtype(input)
    if dtype not in _SMALLEST_NORMAL or target_dtype not in dtypes.INTEGERS:
        raise g.refuse(
            f"{dtype.name if dtype else 'an unknown type'} to {target_dtype.name} is not supported"
        )
    low, high = _range_of(target_dtype, quant_min, quant_max)
    blocks = _divide(g, input, block_size)
    tensor = _view(g, input, blocks.divided_shape) if blocks.is_divided else input
    axes, zero = blocks.inner_axes, g.constant(0.0, dtype)
    # `amin` over no dimension is the minimum of all.
    axes = axes or list(range(len(blocks.divided_shape)))
    lowest = g.call("aten::minimum", g.op("ReduceMin", tensor, axes=axes, keepdims=int(keepdim)), zero)
    highest = g.call("aten::maximum", g.op("ReduceMax", tensor, axes=axes, keepdims=int(keepdim)), zero)
    if mapping_type == "SYMMETRIC":
        farthest = g.call("aten::maximum", g.op("Neg", lowest), highest)
        step = g.op("Div", farthest, (high - low) / 2)
    elif mapping_type == "SYMMETRIC_NO_CLIPPING_ERR":
        step = g.call("aten::maximum", g.op("Div", lowest, float(low)), g.op("Div", highest, float(high)))
    elif mapping_type == "ASYMMETRIC":
        step = g.op("Div", g.op("Sub", highest, lowest), float(high - low))
    else:
        raise g.refuse(f"the mapping {mapping_type} is not supported")
    smallest = _SMALLEST_NORMAL[dtype] if eps is None else eps
    scale = g.call("aten::maximum", step, g.constant(smallest, dtype))
    if mapping_type == "ASYMMETRIC":
        zero_point = g.op("Sub", g.constant(low, dtype), g.call("aten::round", g.op("Div", lowest, scale)))
        zero_point = clamp(g, g.cast(zero_point, DataType.FLOAT), low, high)
        zero_point, bounds = g.cast(zero_point, zero_point_dtype or DataType.INT32), (low, high)
    else:
        middle = int((high + low + 1) / 2)
        zero_point = g.op("Expand", g.constant(middle, zero_point_dtype or dtype), g.op("Shape", scale))
        bounds = (middle, middle)
    if keepdim and blocks.is_divided:
        scale, zero_point = _view(g, scale, blocks.counts), _view(g, zero_point, blocks.counts)
    return g.cast(scale, scale_dtype or dtype), state(zero_point, bounds=bounds)

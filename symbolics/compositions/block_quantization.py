"""Dequantization of matrices with a scale for each group of a row."""

from __future__ import annotations

import dataclasses
import math

from ...registration import DataType, GraphContext, Value
from .affine_quantization import Grid, dequantize, has_dequantize_linear, pack_four_bits


def dequantize_groups(g: GraphContext, input: Value, grid: Grid, out_dtype: DataType) -> Value | None:
    """Dequantize with a scale per group of a row; None if DequantizeLinear has no form for it.

    A DequantizeLinear without blocks, before opset 21, reads each group as a row of its own.

    Args:
        input: integers of two dimensions.
        grid: with blocks of axis 1; scales and zero points have the shape [rows, groups].
        out_dtype: the element type of the result.
    """
    assert isinstance(grid.scale, Value)
    if g.dtype(grid.scale) not in (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16):
        return None
    packed = pack_four_bits(g, input, grid)
    if has_dequantize_linear(g, packed, grid):
        return dequantize(g, packed, grid, out_dtype)
    sizes = [size for size in g.shape(grid.scale) or () if isinstance(size, int)]
    # The number of scales must be known where there are no zero points.
    count = math.prod(sizes) if len(sizes) == 2 else -1
    zeros = grid.zero_point
    if isinstance(zeros, Value):
        # Only constant zero points are known to lie in the range of the integers.
        array = g.constant_value(zeros)
        zeros = g.op("Reshape", zeros, shape=[count]) if array is None else g.constant(array.reshape(-1))
    scale = g.op("Reshape", grid.scale, shape=[count])
    rows = dataclasses.replace(grid, scale=scale, zero_point=zeros, axis=0, block=None)
    if not has_dequantize_linear(g, input, rows):
        return None
    groups = g.op("Reshape", input, shape=[count, grid.block or 1])
    return g.op("Reshape", dequantize(g, groups, rows, out_dtype), g.op("Shape", input))

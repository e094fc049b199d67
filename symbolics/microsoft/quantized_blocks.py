"""Weights with a scale for each block of a row, packed in bytes: MatMulNBits and GatherBlockQuantized."""

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes
from ..compositions.affine_quantization import Grid
from ..compositions.block_quantization import dequantize_groups
from . import microsoft_symbolic, refuse_arguments

_BITS = (2, 4, 8)


def _constant(g: GraphContext, name: str, value: Value) -> np.ndarray:
    """The contents of an input that must be constant, because its bytes are taken apart."""
    array = g.constant_value(value)
    if array is None:
        raise g.refuse(f"input '{name}' must be constant")
    return array


def _unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """The integers in bytes, the lowest bits first, along the last dimension."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    integers: np.ndarray = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return integers.reshape(*packed.shape[:-1], -1)


@microsoft_symbolic("MatMulNBits")
def mat_mul_n_bits(
    g: GraphContext,
    A: Value,
    B: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    K: int = 0,
    N: int = 0,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Value:
    """The weights stay integers where DequantizeLinear of the opset has a form for their blocks."""
    refuse_arguments(g, g_idx=g_idx, weight_prepacked=weight_prepacked)
    if bits not in _BITS:
        raise g.refuse(f"attribute 'bits' must be 2, 4 or 8, not {bits}")
    blocks, dtype = -(-K // block_size), g.dtype(A) or DataType.FLOAT
    g.reserve(N, blocks, block_size)
    integers = _unpack(_constant(g, "B", B).reshape(N, -1), bits)
    if integers.shape != (N, blocks * block_size):
        raise g.refuse("input 'B' has another size than its attributes say")
    # Without zero points, integers are centred on the middle of their range.
    zeros: Value = g.constant(np.full((N, blocks), 2 ** (bits - 1), np.uint8))
    if zero_points is not None and g.dtype(zero_points) in dtypes.FLOATS:
        zeros = g.op("Reshape", zero_points, [N, blocks])
    elif zero_points is not None:
        packed = _constant(g, "zero_points", zero_points).reshape(N, -1)
        zeros = g.constant(_unpack(packed, bits)[:, :blocks])
    grid = Grid(g.op("Reshape", scales, [N, blocks]), zeros, 0, 2**bits - 1, axis=1, block=block_size)
    weights = _dequantize_rows(g, integers, grid, dtype)
    # The last block of a row is filled up.
    if blocks * block_size != K:
        weights = g.op("Slice", weights, starts=[0], ends=[K], axes=[1])
    product = g.op("MatMul", A, g.op("Transpose", weights, perm=[1, 0]))
    return product if bias is None else g.op("Add", product, bias)


def _dequantize_rows(g: GraphContext, integers: np.ndarray, grid: Grid, dtype: DataType) -> Value:
    """Dequantize a matrix in blocks of its rows."""
    assert isinstance(grid.scale, Value)
    assert isinstance(grid.zero_point, Value)
    if g.dtype(grid.zero_point) not in dtypes.FLOATS:
        result = dequantize_groups(g, g.constant(integers), grid, dtype)
        if result is not None:
            return result
    rows, width = integers.shape
    # Zero points of floats have no operator, so the weights become floats, which the optimizer folds.
    groups = g.constant(integers.reshape(rows, -1, grid.block or width))
    scale, zeros = (g.op("Unsqueeze", value, axes=[2]) for value in (grid.scale, grid.zero_point))
    real = g.op("Mul", g.op("Sub", g.cast(groups, dtype), g.cast(zeros, dtype)), g.cast(scale, dtype))
    return g.op("Reshape", real, [rows, width])


@microsoft_symbolic("GatherBlockQuantized")
def gather_block_quantized(
    g: GraphContext,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Value:
    """Gathers rows of integers, and dequantizes them. Indices must lie in the table, as for Gather."""
    integers = _constant(g, "data", data)
    rank = integers.ndim
    if g.axis(gather_axis, rank) != 0 or g.axis(quantize_axis, rank) != 1 or rank != 2:
        raise g.refuse("only rows of a matrix with blocks along its rows are supported")
    is_packed, default = g.dtype(data) == DataType.UINT8, 0
    if is_packed:
        integers, default = _unpack(integers, bits), 2 ** (bits - 1)
    elif g.dtype(data) not in (DataType.INT4, DataType.UINT4):
        raise g.refuse("the table must have elements of UINT8, INT4 or UINT4")
    # The table stays in integers, of which only the rows that are read become floats.
    zeros = None
    if zero_points is not None:
        zeros = _constant(g, "zero_points", zero_points)
        zeros = _unpack(zeros, bits)[:, : (g.shape(scales) or [0, 0])[1]] if is_packed else zeros
    rows, dtype = integers.shape[0], g.dtype(scales) or DataType.FLOAT
    signed = np.int8 if g.dtype(data) == DataType.INT4 else np.uint8
    table = g.constant(integers.astype(signed).reshape(rows, -1, min(block_size, integers.shape[1])))
    gathered = g.cast(g.op_of_any_data("Gather", table, indices, axis=0), dtype)
    zero: Value = g.constant(float(default), dtype)
    if zeros is not None:
        zero = g.op_of_any_data("Gather", g.constant(zeros.astype(signed)[..., None]), indices, axis=0)
    centred = g.op("Sub", gathered, g.cast(zero, dtype)) if default or zeros is not None else gathered
    scale = g.op_of_any_data("Gather", g.op("Unsqueeze", scales, axes=[2]), indices, axis=0)
    product = g.op("Mul", centred, scale)
    sizes = [0] * (g.rank(indices) or 0)
    return g.op("Reshape", product, [*sizes, integers.shape[1]])

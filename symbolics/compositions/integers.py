"""Casts of integers to element types for which runtimes have kernels."""

from collections.abc import Sequence

import numpy as np

from ...registration import DataType, GraphContext, Number, Value, dtypes

_LONG = (DataType.INT64, DataType.UINT32, DataType.UINT64)


def widen_integers(g: GraphContext, value: Value) -> Value:
    """The value, with narrow and unsigned integers as INT32 or INT64; casting back wraps around correctly."""
    dtype = g.dtype(value)
    if dtype not in dtypes.INTEGERS or dtype in (DataType.INT32, DataType.INT64):
        return value
    return g.cast(value, DataType.INT64 if dtype in _LONG else DataType.INT32)


def widen_for_sum(g: GraphContext, tensors: Sequence[Value]) -> tuple[list[Value], DataType | None]:
    """Tensors in a type with kernels for sums and products, and the type of the result.

    In ATen the result type of integers is their own after a product, and INT64 after a sum only.
    """
    dtype = g.dtype(tensors[0])
    if dtype not in dtypes.INTEGERS and dtype != DataType.BOOL:
        return list(tensors), None
    result_dtype = (g.expected[0].dtype if g.expected else None) or dtype
    wide = DataType.INT64 if result_dtype in _LONG else DataType.INT32
    return [g.cast(tensor, wide) for tensor in tensors], result_dtype


def element(g: GraphContext, number: Number, dtype: DataType) -> np.ndarray:
    """A number to fill a tensor with; as in ATen, a negative integer wraps around in an unsigned type."""
    if dtype not in dtypes.INTEGERS:
        return np.asarray(number).astype(dtype.numpy())
    limits = np.iinfo(dtype.numpy())
    least = -limits.max if limits.min == 0 and isinstance(number, int) else limits.min
    if isinstance(number, complex) or not least <= number <= limits.max:
        raise g.refuse(f"its fill_value {number} does not fit {dtype.name}")
    return np.asarray(int(number)).astype(dtype.numpy())


def quotient(g: GraphContext, dividend: Value, divisor: Value | Number) -> Value:
    """The quotient of integers, rounded towards zero.

    A dividend of 1 becomes the negative of -1 / x, because onnxruntime rewrites 1 / x * y to y / x.
    """
    dividend_array = g.constant_value(dividend)
    if (
        dividend_array is None
        or g.dtype(dividend) not in (DataType.INT32, DataType.INT64)
        or not np.any(dividend_array == 1)
    ):
        return g.op("Div", dividend, divisor)
    return g.op("Neg", g.op("Div", g.constant(np.asarray(-dividend_array), g.dtype(dividend)), divisor))

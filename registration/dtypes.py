"""Properties of element types: lossless conversions, limits, numpy types."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from onnx_ir import DataType

from .errors import UnsupportedError

Number = int | float | bool
"""A Python number, for parameters of type Scalar in the ATen schema."""

HALVES = (DataType.FLOAT16, DataType.BFLOAT16)
FLOATS = frozenset({*HALVES, DataType.FLOAT, DataType.DOUBLE})
SIGNED = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64)
UNSIGNED = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)
INTEGERS = frozenset({*SIGNED, *UNSIGNED})
FLOATS_OF_A_BYTE = (
    DataType.FLOAT8E4M3FN,
    DataType.FLOAT8E4M3FNUZ,
    DataType.FLOAT8E5M2,
    DataType.FLOAT8E5M2FNUZ,
)
QUANTIZED = frozenset({DataType.INT4, DataType.UINT4, DataType.INT8, DataType.UINT8, *FLOATS_OF_A_BYTE})
"""The types of quantized weights. Every type of products holds all of their values."""

# Types that represent every value of the key, cheapest first. Integers come before floats, so that arithmetic
# in the wider type wraps like the narrow one after casting back.
_HOLDS: dict[DataType, tuple[DataType, ...]] = {
    DataType.BOOL: (DataType.INT32, DataType.INT64, DataType.UINT8, DataType.FLOAT, DataType.DOUBLE),
    DataType.INT8: (DataType.INT16, DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE),
    DataType.UINT8: (
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.UINT16,
        DataType.UINT32,
        DataType.UINT64,
        DataType.FLOAT,
        DataType.DOUBLE,
    ),
    DataType.INT16: (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE),
    DataType.UINT16: (
        DataType.INT32,
        DataType.INT64,
        DataType.UINT32,
        DataType.UINT64,
        DataType.FLOAT,
        DataType.DOUBLE,
    ),
    DataType.INT32: (DataType.INT64, DataType.DOUBLE),
    DataType.UINT32: (DataType.INT64, DataType.UINT64, DataType.DOUBLE),
    DataType.FLOAT16: (DataType.FLOAT, DataType.DOUBLE),
    DataType.BFLOAT16: (DataType.FLOAT, DataType.DOUBLE),
    DataType.FLOAT: (DataType.DOUBLE,),
    **dict.fromkeys(FLOATS_OF_A_BYTE, (DataType.FLOAT16, DataType.FLOAT)),
}


def holding(dtype: DataType, allowed: Collection[DataType]) -> DataType | None:
    """Return the cheapest of the `allowed` types that represents every value of `dtype`, or None."""
    if dtype in allowed:
        return dtype
    return next((wide for wide in _HOLDS.get(dtype, ()) if wide in allowed), None)


def of_number(value: bool | int | float) -> DataType:
    """Return the default element type of a Python number: BOOL, INT64 or FLOAT."""
    if isinstance(value, (bool, np.bool_)):
        return DataType.BOOL
    return DataType.INT64 if isinstance(value, (int, np.integer)) else DataType.FLOAT


def limits(dtype: DataType) -> tuple[int | float, int | float]:
    """Return the lowest and highest finite value of an element type, as Python numbers."""
    if dtype == DataType.BOOL:
        return False, True
    if dtype in INTEGERS:
        info = np.iinfo(dtype.numpy())
        return int(info.min), int(info.max)
    import ml_dtypes

    numbers = ml_dtypes.finfo(dtype.numpy())  # type: ignore[no-untyped-call]
    return float(numbers.min), float(numbers.max)


def element_type(number: int) -> DataType:
    """The element type with a number of ONNX's `TensorProto.DataType`.

    Raises:
        UnsupportedError: there is none, or it is UNDEFINED.
    """
    if number not in _NUMBERS:
        raise UnsupportedError(f"{number} is not the number of an element type")
    return DataType(number)


_NUMBERS = frozenset(int(item) for item in DataType) - {int(DataType.UNDEFINED)}

"""TensorFlow's element types in numpy and in ONNX."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import onnx_ir as ir

from .messages import message_type

_REFERENCE_OFFSET = 100
"""The offset between a type's number and that of a reference to it: DT_FLOAT is 1, DT_FLOAT_REF is 101."""
_TYPES: dict[str, tuple[type, ir.DataType | None]] = {
    "DT_FLOAT": (np.float32, ir.DataType.FLOAT),
    "DT_DOUBLE": (np.float64, ir.DataType.DOUBLE),
    "DT_HALF": (np.float16, ir.DataType.FLOAT16),
    "DT_BFLOAT16": (ml_dtypes.bfloat16, ir.DataType.BFLOAT16),
    "DT_FLOAT8_E5M2": (ml_dtypes.float8_e5m2, ir.DataType.FLOAT8E5M2),
    "DT_FLOAT8_E4M3FN": (ml_dtypes.float8_e4m3fn, ir.DataType.FLOAT8E4M3FN),
    "DT_FLOAT8_E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, ir.DataType.FLOAT8E4M3FNUZ),
    "DT_FLOAT8_E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, ir.DataType.FLOAT8E5M2FNUZ),
    "DT_FLOAT8_E4M3B11FNUZ": (ml_dtypes.float8_e4m3b11fnuz, None),
    "DT_FLOAT4_E2M1FN": (ml_dtypes.float4_e2m1fn, ir.DataType.FLOAT4E2M1),
    "DT_COMPLEX64": (np.complex64, ir.DataType.COMPLEX64),
    "DT_COMPLEX128": (np.complex128, ir.DataType.COMPLEX128),
    "DT_INT8": (np.int8, ir.DataType.INT8),
    "DT_INT16": (np.int16, ir.DataType.INT16),
    "DT_INT32": (np.int32, ir.DataType.INT32),
    "DT_INT64": (np.int64, ir.DataType.INT64),
    "DT_UINT8": (np.uint8, ir.DataType.UINT8),
    "DT_UINT16": (np.uint16, ir.DataType.UINT16),
    "DT_UINT32": (np.uint32, ir.DataType.UINT32),
    "DT_UINT64": (np.uint64, ir.DataType.UINT64),
    "DT_INT4": (ml_dtypes.int4, ir.DataType.INT4),
    "DT_UINT4": (ml_dtypes.uint4, ir.DataType.UINT4),
    "DT_INT2": (ml_dtypes.int2, ir.DataType.INT2),
    "DT_UINT2": (ml_dtypes.uint2, ir.DataType.UINT2),
    "DT_QINT8": (np.int8, None),
    "DT_QINT16": (np.int16, None),
    "DT_QINT32": (np.int32, None),
    "DT_QUINT8": (np.uint8, None),
    "DT_QUINT16": (np.uint16, None),
    "DT_BOOL": (np.bool_, ir.DataType.BOOL),
    "DT_STRING": (np.object_, ir.DataType.STRING),
}
"""The numpy type of each element type that has contents, and the ONNX type with the same values.

ONNX has no quantized types: the integers of a `DT_QINT8` have no meaning without their range.
"""


ElementType = ir.DataType | str
"""An ONNX element type, or the name of a type that ONNX lacks: "variant", "qint8"."""

_CACHE_SIZE = 256
"""Numbers of element types whose names are cached: a file may contain any number."""


@functools.cache
def _names() -> dict[int, str]:
    return {number: name for name, number in message_type.enumeration("DataType").items()}


@functools.lru_cache(_CACHE_SIZE)
def type_name(number: int) -> str:
    """The name of an element type or of a reference to it, "DT_FLOAT"; "element type 77" if it is unknown."""
    plain = number - _REFERENCE_OFFSET if number > _REFERENCE_OFFSET else number
    return _names().get(plain, f"element type {number}")


@functools.cache
def type_number(name: str) -> int:
    """The number of an element type by its name, "DT_FLOAT"."""
    return message_type.enumeration("DataType")[name]


def numpy_type(number: int) -> np.dtype | None:
    """The numpy type of the contents of tensors: object for strings, None for handles and unknown numbers."""
    types = _TYPES.get(type_name(number))
    return None if types is None else np.dtype(types[0])


@functools.lru_cache(_CACHE_SIZE)
def onnx_type(number: int) -> ElementType:
    """The ONNX element type; if there is none, the name without "DT_": "variant", "qint8"."""
    # The name without "DT_" is what TensorFlow's own messages call a type.
    name = type_name(number)
    onnx = _TYPES.get(name, (None, None))[1]
    return name.removeprefix("DT_").lower() if onnx is None else onnx

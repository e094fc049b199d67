"""TensorFlow's element types in numpy and in ONNX."""

import functools

import ml_dtypes
import numpy as np
import onnx_ir as ir

from .messages import message_type

_REFERENCE_OFFSET = 100
"""The offset between a type's number and that of a reference to it: DT_FLOAT is 1, DT_FLOAT_REF is 101."""
_NUMPY_NAMES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_STRING": "object",
    # A quantized type has the integers of the type without Q.
    **{f"DT_Q{name}": name.lower() for name in ("INT8", "INT16", "INT32", "UINT8", "UINT16")},
    **{
        f"DT_{name}": name.lower()
        for name in (
            "BFLOAT16 FLOAT8_E5M2 FLOAT8_E4M3FN FLOAT8_E4M3FNUZ FLOAT8_E5M2FNUZ FLOAT8_E4M3B11FNUZ "
            "FLOAT4_E2M1FN COMPLEX64 COMPLEX128 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 INT4 UINT4 "
            "INT2 UINT2 BOOL"
        ).split()
    },
}
_NUMPY_TYPES = {name: np.dtype(getattr(ml_dtypes, text, text)) for name, text in _NUMPY_NAMES.items()}
"""The numpy type of each element type that has contents."""
_ONNX_TYPES: dict[str, ir.DataType] = {
    name: ir.DataType.STRING if dtype == np.object_ else ir.DataType.from_numpy(dtype)
    for name, dtype in _NUMPY_TYPES.items()
    # ONNX has no quantized types: the integers of a DT_QINT8 have no meaning without their range.
    if not name.startswith(("DT_QINT", "DT_QUINT")) and name != "DT_FLOAT8_E4M3B11FNUZ"
}
"""The ONNX type with the same values."""

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
    return _NUMPY_TYPES.get(type_name(number))


@functools.lru_cache(_CACHE_SIZE)
def onnx_type(number: int) -> ElementType:
    """The ONNX element type; if there is none, the name without "DT_": "variant", "qint8"."""
    name = type_name(number)
    return _ONNX_TYPES.get(name, name.removeprefix("DT_").lower())

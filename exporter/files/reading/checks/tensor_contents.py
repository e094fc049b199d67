"""Checks the tensors of a file: element type, shape, and number of elements."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from .....registration import ModelFileError
from ..external_data.files import ExternalFiles

MAXIMUM_RANK = 32
"""Dimensions of an array in every supported numpy."""
_KINDS = frozenset(int(kind) for kind in ir.DataType) - {onnx.TensorProto.UNDEFINED}
_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_PACKED = frozenset(
    kind for kind in ir.DataType if kind.name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
)
_PLACES = {
    "FLOAT": "float_data",
    "COMPLEX64": "float_data",
    "DOUBLE": "double_data",
    "COMPLEX128": "double_data",
    "INT64": "int64_data",
    "UINT64": "uint64_data",
    "UINT32": "uint64_data",
    "STRING": "string_data",
}
"""The field for contents that are not raw, by element type; others use int32_data."""


def check_element_type(number: int, shown: str) -> None:
    """Refuse an unknown or undefined element type."""
    if number not in _KINDS:
        raise ModelFileError(f"{shown} has the element type {number}, which ONNX does not define")


def check_tensor(tensor: onnx.TensorProto, files: ExternalFiles, shown: str) -> None:
    """Refuse a tensor whose contents do not match its element type and shape.

    External data is checked but not read.

    Raises:
        ModelFileError: the tensor is invalid. The message names it as `shown`.
    """
    check_element_type(tensor.data_type, shown)
    dims = list(tensor.dims)
    if min(dims, default=0) < 0:
        raise ModelFileError(f"{shown} has a negative size, {min(dims)}")
    if len(dims) > MAXIMUM_RANK:
        raise ModelFileError(f"{shown} has {len(dims)} dimensions, more than {MAXIMUM_RANK}")
    if math.prod(size for size in dims if size) >= 2**48:
        raise ModelFileError(f"{shown} has sizes that exceed any memory")
    if tensor.HasField("segment"):
        raise ModelFileError(f"{shown} is a segment of a tensor, which is not supported")
    kind = ir.DataType(tensor.data_type)
    count = math.prod(dims)
    filled = [field for field in _FIELDS if len(getattr(tensor, field))]
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if filled or tensor.HasField("raw_data"):
            raise ModelFileError(f"{shown} has contents in the model and in external data")
        if kind == ir.DataType.STRING:
            raise ModelFileError(f"{shown} has strings in external data, which ONNX does not allow")
        files.check(tensor, _size(kind, count), shown)
        return
    if tensor.external_data:
        raise ModelFileError(f"{shown} has external data, but its data location says otherwise")
    if len(filled) + tensor.HasField("raw_data") > 1:
        raise ModelFileError(f"{shown} has its contents twice, in {' and '.join([*filled, 'raw_data'][:2])}")
    if tensor.HasField("raw_data"):
        _check_raw(tensor, kind, count, shown)
    else:
        _check_typed(tensor, kind, count, filled, shown)


def _size(kind: ir.DataType, count: int) -> int:
    return -(-count * kind.bitwidth // 8)


def _check_raw(tensor: onnx.TensorProto, kind: ir.DataType, count: int, shown: str) -> None:
    if kind == ir.DataType.STRING:
        raise ModelFileError(f"{shown} has strings in raw_data, which ONNX does not allow")
    held = tensor.raw_data
    size = _size(kind, count)
    if len(held) != size:
        raise ModelFileError(f"{shown} is {size} bytes by its type and shape, but contains {len(held)}")
    if kind == ir.DataType.BOOL and held.translate(None, b"\0\1"):
        raise ModelFileError(f"{shown} holds booleans that are neither 0 nor 1")


def _check_typed(
    tensor: onnx.TensorProto, kind: ir.DataType, count: int, filled: list[str], shown: str
) -> None:
    place = _PLACES.get(kind.name, "int32_data")
    if filled and filled != [place]:
        raise ModelFileError(f"{shown} has its contents in {filled[0]}, but {kind.name} must be in {place}")
    held = getattr(tensor, place)
    expected = _size(kind, count) if kind in _PACKED else count
    if kind in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        expected *= 2
    if len(held) != expected:
        raise ModelFileError(
            f"{shown} has {expected} elements in {place} by its shape, but contains {len(held)}"
        )
    low, high = _range(kind)
    if high and len(held):
        values = np.array(held)
        if values.min() < low or values.max() > high:
            raise ModelFileError(f"{shown} contains a number that {kind.name} does not represent")


def _range(kind: ir.DataType) -> tuple[int, int]:
    """The range of valid numbers, if the field can hold others; else (0, 0)."""
    if kind == ir.DataType.BOOL:
        return 0, 1
    if kind == ir.DataType.UINT32:
        return 0, 2**32 - 1
    if kind.name in ("FLOAT6E2M3", "FLOAT6E3M2"):
        return 0, 2**6 - 1
    if kind.name in _PLACES or kind.bitwidth > 16:
        return 0, 0
    # Bit patterns are written with and without a sign.
    bits = max(kind.bitwidth, 8)
    return (0 if kind.name in ("UINT8", "UINT16") else -(2 ** (bits - 1))), 2**bits - 1

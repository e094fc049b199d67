"""Checks the tensors of a file: element type, shape, and number of elements."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from .....registration import ModelFileError
from .....registration.inference.tensor_sizes import packed_bytes
from ..external_data.files import ExternalFiles

MAXIMUM_RANK = 32
"""Dimensions of an array in every supported numpy."""
_ELEMENT_TYPES = frozenset(int(dtype) for dtype in ir.DataType) - {onnx.TensorProto.UNDEFINED}
_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_PACKED_TYPES = frozenset(
    dtype for dtype in ir.DataType if dtype.name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
)
_TYPED_FIELDS = {
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


def check_element_type(number: int, title: str) -> None:
    """Refuse an unknown or undefined element type."""
    if number not in _ELEMENT_TYPES:
        raise ModelFileError(f"{title} has the element type {number}, which ONNX does not define")


def check_tensor(tensor: onnx.TensorProto, files: ExternalFiles, title: str) -> None:
    """Refuse a tensor whose contents do not match its element type and shape.

    External data is checked but not read.

    Raises:
        ModelFileError: the tensor is invalid. The message names it as `title`.
    """
    check_element_type(tensor.data_type, title)
    dims = list(tensor.dims)
    if min(dims, default=0) < 0:
        raise ModelFileError(f"{title} has a negative size, {min(dims)}")
    if len(dims) > MAXIMUM_RANK:
        raise ModelFileError(f"{title} has {len(dims)} dimensions, more than {MAXIMUM_RANK}")
    # numpy refuses an empty array too if the product of its other sizes overflows.
    if math.prod(size for size in dims if size) >= 2**48:
        raise ModelFileError(f"{title} has sizes that exceed any memory")
    if tensor.HasField("segment"):
        raise ModelFileError(f"{title} is a segment of a tensor, which is not supported")
    dtype = ir.DataType(tensor.data_type)
    count = math.prod(dims)
    filled = [field for field in _FIELDS if len(getattr(tensor, field))]
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if filled or tensor.HasField("raw_data"):
            raise ModelFileError(f"{title} has contents in the model and in external data")
        if dtype == ir.DataType.STRING:
            raise ModelFileError(f"{title} has strings in external data, which ONNX does not allow")
        files.check(tensor, packed_bytes(dtype, count), title)
        return
    if tensor.external_data:
        raise ModelFileError(f"{title} has external data, but its data location says otherwise")
    if len(filled) + tensor.HasField("raw_data") > 1:
        raise ModelFileError(f"{title} has its contents twice, in {' and '.join([*filled, 'raw_data'][:2])}")
    if tensor.HasField("raw_data"):
        _check_raw(tensor, dtype, count, title)
    else:
        _check_typed(tensor, dtype, count, filled, title)


def _check_raw(tensor: onnx.TensorProto, dtype: ir.DataType, count: int, title: str) -> None:
    if dtype == ir.DataType.STRING:
        raise ModelFileError(f"{title} has strings in raw_data, which ONNX does not allow")
    raw = tensor.raw_data
    size = packed_bytes(dtype, count)
    if len(raw) != size:
        raise ModelFileError(f"{title} is {size} bytes by its type and shape, but contains {len(raw)}")
    if dtype == ir.DataType.BOOL and raw.translate(None, b"\0\1"):
        raise ModelFileError(f"{title} holds booleans that are neither 0 nor 1")


def _check_typed(
    tensor: onnx.TensorProto, dtype: ir.DataType, count: int, filled: list[str], title: str
) -> None:
    field = _TYPED_FIELDS.get(dtype.name, "int32_data")
    if filled and filled != [field]:
        raise ModelFileError(f"{title} has its contents in {filled[0]}, but {dtype.name} must be in {field}")
    elements = getattr(tensor, field)
    expected = packed_bytes(dtype, count) if dtype in _PACKED_TYPES else count
    # A complex number is two entries: its real and its imaginary part.
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        expected *= 2
    if len(elements) != expected:
        raise ModelFileError(
            f"{title} has {expected} elements in {field} by its shape, but contains {len(elements)}"
        )
    low, high = _range(dtype)
    if high and len(elements):
        values = np.array(elements)
        if values.min() < low or values.max() > high:
            raise ModelFileError(f"{title} contains a number that {dtype.name} does not represent")


def _range(dtype: ir.DataType) -> tuple[int, int]:
    """The range of valid numbers, if the field can hold others; else (0, 0)."""
    if dtype == ir.DataType.BOOL:
        return 0, 1
    if dtype == ir.DataType.UINT32:
        return 0, 2**32 - 1
    if dtype.name in ("FLOAT6E2M3", "FLOAT6E3M2"):
        return 0, 2**6 - 1
    if dtype.name in _TYPED_FIELDS or dtype.bitwidth > 16:
        return 0, 0
    # Bit patterns are written with and without a sign.
    bits = max(dtype.bitwidth, 8)
    return (0 if dtype.name in ("UINT8", "UINT16") else -(2 ** (bits - 1))), 2**bits - 1

"""Sizes of tensors and shapes, in a fraction of the time of onnx-ir's `size`, `nbytes` and `is_static`.

The first two check on each call that no size is a symbol, and no size of a tensor is one.
"""

from __future__ import annotations

import math

import onnx_ir as ir

_SYMBOLS = frozenset({ir.SymbolicDim})


def is_static(shape: ir.Shape) -> bool:
    """Whether all sizes of a shape are numbers."""
    return _SYMBOLS.isdisjoint(map(type, shape.dims))


def element_count(tensor: ir.TensorProtocol) -> int:
    """The number of elements."""
    return math.prod(tensor.shape.dims)  # type: ignore[arg-type]


def packed_bytes(dtype: ir.DataType, count: int) -> int:
    """Return the number of bytes of a number of elements that are not strings."""
    # Elements of less than a byte are packed: only the whole is rounded up to bytes.
    return -(-count * dtype.bitwidth // 8)


def byte_count(tensor: ir.TensorProtocol) -> int:
    """The number of bytes; those of strings are the sum of their lengths."""
    if tensor.dtype is ir.DataType.STRING:
        return tensor.nbytes
    return packed_bytes(tensor.dtype, element_count(tensor))

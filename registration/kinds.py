"""Quick tests of what an object is.

The classes of onnx_ir are protocols of `typing`, for which isinstance takes two microseconds if the object is
not one of them. Most arguments of an operator are numbers, lists and types of tensors.
"""

from __future__ import annotations

from typing import TypeGuard

import onnx_ir as ir
from onnx_ir import DataType, Value

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, list, tuple, dict, DataType})


def is_value(item: object) -> TypeGuard[Value]:
    """Whether an object is a value of a graph."""
    kind = type(item)
    return kind is Value or (kind not in _PLAIN and isinstance(item, Value))


def is_sequence_type(kind: object) -> TypeGuard[ir.SequenceType]:
    """Whether a type is that of a sequence."""
    return kind is not None and type(kind) is not ir.TensorType and isinstance(kind, ir.SequenceType)

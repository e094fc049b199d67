"""Fast type tests.

The classes of onnx_ir are `typing` protocols; isinstance takes two microseconds for objects of other types,
such as the numbers and lists among an operator's arguments. Test for numbers and lists first, or call
`is_value`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, np.ndarray, DataType}
)


def is_value(item: object) -> TypeGuard[Value]:
    """Whether an object is a value of a graph."""
    item_type = type(item)
    return item_type is Value or (item_type not in _PLAIN and isinstance(item, Value))


def has_value(items: Collection[object]) -> bool:
    """Whether a value of a graph is among some objects."""
    return not _PLAIN.issuperset(map(type, items)) and any(map(is_value, items))


def is_sequence_type(value_type: object) -> TypeGuard[ir.SequenceType]:
    """Whether a type is a sequence type."""
    return (
        value_type is not None
        and type(value_type) is not ir.TensorType
        and isinstance(value_type, ir.SequenceType)
    )

"""Values of an element type without operators at the target, held in another type: BFLOAT16 in FLOAT.

The ONNX graph has the holder. While the graph is built, a value of the narrow type represents it, so that
symbolic functions see the model's element type; no node reads that value.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

_HOLDER = "opsetta.holder"


def held_in(holder: Value, dtype: DataType) -> Value:
    """A value of an element type that another value holds."""
    result = Value(name=holder.name, type=ir.TensorType(dtype), shape=holder.shape)
    result.meta[_HOLDER] = holder
    return result


def holder_of(value: Value) -> Value | None:
    """The graph value that holds another value; None if that value is itself in the graph."""
    holder: Value | None = value.meta.get(_HOLDER)
    return holder

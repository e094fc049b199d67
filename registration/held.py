"""Values of an element type that the target has no operators for, held in another: BFLOAT16 in FLOAT.

What holds such a value is in the ONNX graph. The value of the narrow type stands for it while the graph is
built, so that a symbolic function that asks for the element type is told the model's own; no node takes it.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

_HOLDER = "opsetta.holder"


def held_in(holder: Value, dtype: DataType) -> Value:
    """A value of an element type, whose numbers another value holds."""
    result = Value(name=holder.name, type=ir.TensorType(dtype), shape=holder.shape)
    result.meta[_HOLDER] = holder
    return result


def holder_of(value: Value) -> Value | None:
    """The value in the graph that holds the numbers of another; None where that is in the graph itself."""
    holder: Value | None = value.meta.get(_HOLDER)
    return holder

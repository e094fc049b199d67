"""Static properties of a value beyond its type and shape.

The symbolic function that makes a value states them, and those that read the value rely on them. They exist
only during lowering and are not saved.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

_KEY = "opsetta.facts"


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a value.

    Attributes:
        bounds: the smallest and largest possible element of a tensor of whole numbers.
        exact_in: the narrower float type that represents every element.
        computed: the value in the element type of PyTorch's computation, if that differs from the declared
            type.
        holder: the graph value that stores this one in another element type. Symbolic functions see this
            value, which has the model's element type; nodes read the holder.
        mutated: whether it is a parameter or buffer that the model writes to.
    """

    bounds: tuple[float, float] = (-math.inf, math.inf)
    exact_in: DataType | None = None
    computed: Value | None = None
    holder: Value | None = None
    mutated: bool = False


_NONE = Facts()


def facts_of(value: Value) -> Facts:
    """Return the facts known about a value."""
    # The dict itself: its wrapper takes ten times as long for a key that it does not have.
    facts: Facts = value.meta.data.get(_KEY, _NONE)
    return facts


def state(value: Value, **facts: Any) -> Value:
    """Add facts, the fields of `Facts`, to what is known of a value; returns the value."""
    value.meta[_KEY] = dataclasses.replace(facts_of(value), **facts)
    return value


def held_in(holder: Value, dtype: DataType) -> Value:
    """Store a value whose element type has no operators at the target in another type: BFLOAT16 in FLOAT."""
    return state(Value(name=holder.name, type=ir.TensorType(dtype), shape=holder.shape), holder=holder)


def holder_of(value: Value) -> Value | None:
    """Return the graph value that stores `value` in another type; None if `value` itself is in the graph."""
    return facts_of(value).holder

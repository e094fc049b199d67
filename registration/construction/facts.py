"""What is known of a value beyond its type and shape.

The symbolic function that makes a value states the facts, and those that read it rely on them. They last
while the graph is built; no file has them.
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
        bounds: the least and the greatest number that an element may be; the elements are whole numbers.
        exact_in: the narrower float type that represents every element.
        computed: the value in the element type that PyTorch computes it in, if it declares another one.
        holder: the graph value that holds this one in another element type. While the graph is built, this
            value represents it, so that symbolic functions see the model's element type; no node reads it.
        mutated: whether it is a parameter or buffer that the model writes to.
    """

    bounds: tuple[float, float] = (-math.inf, math.inf)
    exact_in: DataType | None = None
    computed: Value | None = None
    holder: Value | None = None
    mutated: bool = False


_NONE = Facts()


def facts_of(value: Value) -> Facts:
    """What is known of a value."""
    found: Facts = value.meta.get(_KEY, _NONE)
    return found


def state(value: Value, **facts: Any) -> Value:
    """Add facts, the fields of `Facts`, to what is known of a value; returns the value."""
    value.meta[_KEY] = dataclasses.replace(facts_of(value), **facts)
    return value


def held_in(holder: Value, dtype: DataType) -> Value:
    """A value of an element type without operators at the target, held in another type: BFLOAT16 in FLOAT."""
    return state(Value(name=holder.name, type=ir.TensorType(dtype), shape=holder.shape), holder=holder)


def holder_of(value: Value) -> Value | None:
    """The graph value that holds another value; None if that value is itself in the graph."""
    return facts_of(value).holder

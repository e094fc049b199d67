"""What forms ask of their operands: sizes that are known, and values that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from ....registration import GraphContext, Value


def is_stored(value: Value | None, depth: int = 8) -> bool:
    """Whether a value is computed from stored tensors only, at most so many nodes away."""
    if value is None or value.const_value is not None:
        return True
    producer = value.producer()
    if producer is None or not depth:
        return False
    return all(is_stored(operand, depth - 1) for operand in producer.inputs)


def static_shape(g: GraphContext, value: Value) -> list[int]:
    """The sizes of a value; the form is refused if one is not known."""
    shape = g.shape(value)
    if shape is None or not all_static(shape):
        raise g.refuse("the sizes must be known")
    return list(shape)


def all_static(shape: Iterable[object]) -> TypeGuard[Sequence[int]]:
    """Whether every size of a shape is a number above 0."""
    return all(isinstance(size, int) and size > 0 for size in shape)

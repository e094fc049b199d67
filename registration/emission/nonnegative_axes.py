"""Counts axes from the first dimension: below opset 11, operators take no negative axes.

The texts of Squeeze-1, Unsqueeze-1 and Flatten-9 say so; those of the others begin to define negative axes
with their versions of opset 11.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import AttributeType, Value

NEGATIVE_AXES = 11
"""Negative axes begin at this opset."""
_GAINS_ONE = ("OneHot", "ConcatFromSequence")
"""Operators whose axis is that of a result with one more dimension."""


def count_from_front(op_type: str, rank: int, axes: Sequence[int]) -> list[int]:
    """The axes of an operator as non-negative numbers.

    Args:
        rank: the number of dimensions of the operator's first input.
    """
    if op_type == "Unsqueeze":
        rank += len(axes)
    elif op_type in _GAINS_ONE:
        rank += 1
    return [axis + rank if axis < 0 else axis for axis in axes]


def attributes_from_front(
    op_type: str, inputs: Sequence[Value | None], attributes: Sequence[ir.Attr]
) -> list[ir.Attr]:
    """The attributes with non-negative axes where the rank is known, and as they are otherwise."""
    return [_from_front(op_type, inputs, attribute) for attribute in attributes]


def _from_front(op_type: str, inputs: Sequence[Value | None], attribute: ir.Attr) -> ir.Attr:
    if attribute.name not in ("axis", "axes"):
        return attribute
    is_single = attribute.type == AttributeType.INT
    axes = [attribute.as_int()] if is_single else list(attribute.as_ints())
    # All inputs of Concat have one rank, which need not be known of the first.
    operands = inputs if op_type == "Concat" else inputs[:1]
    shapes = (value.shape for value in operands if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    if rank is None or all(axis >= 0 for axis in axes):
        return attribute
    front = count_from_front(op_type, rank, axes)
    return ir.Attr(attribute.name, attribute.type, front[0] if is_single else front)

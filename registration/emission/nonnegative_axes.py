"""Counts axes from the first dimension: below opset 11, operators take no negative axes.

The texts of Squeeze-1, Unsqueeze-1 and Flatten-9 say so; those of the others begin to define negative axes
with their versions of opset 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import AttributeType, Value

from ..construction.builder import GraphBuilder
from ..errors import UnsupportedError
from ..schemas import OperatorSchema

NEGATIVE_AXES = 11
"""Negative axes begin at this opset."""
_GAINS_ONE = ("OneHot", "ConcatFromSequence")
"""Operators whose axis is that of a result with one more dimension."""
_INTEGERS = (AttributeType.INT, AttributeType.INTS)


def attributes_from_front(
    op_type: str, inputs: Sequence[Value | None], attributes: Iterable[ir.Attr], needs_rank: bool = False
) -> list[ir.Attr]:
    """The attributes of an operator with non-negative axes.

    Args:
        needs_rank: whether a negative axis of a tensor of unknown rank is refused; else it stays.

    Raises:
        UnsupportedError: the rank is unknown, and needed.
    """
    result = []
    for attribute in attributes:
        if attribute.name in ("axis", "axes") and attribute.type in _INTEGERS:
            is_single = attribute.type == AttributeType.INT
            axes = [attribute.as_int()] if is_single else attribute.as_ints()
            front = _count_from_front(op_type, inputs, axes, needs_rank)
            if front is not None:
                attribute = ir.Attr(attribute.name, attribute.type, front[0] if is_single else front)
        result.append(attribute)
    return result


def inputs_from_front(
    g: GraphBuilder, schema: OperatorSchema, inputs: list[Value | None], needs_rank: bool = False
) -> list[Value | None]:
    """The inputs of an operator, with non-negative axes if they are constant.

    Args:
        needs_rank: as for `attributes_from_front`.

    Raises:
        UnsupportedError: likewise.
    """
    index = schema.input_index.get("axes")
    axes = inputs[index] if index is not None and index < len(inputs) else None
    array = g.constant_value(axes) if axes is not None else None
    if index is None or array is None:
        return inputs
    front = _count_from_front(schema.name, inputs, array.reshape(-1).tolist(), needs_rank)
    if front is None:
        return inputs
    return [*inputs[:index], g.constant(np.array(front, dtype=array.dtype)), *inputs[index + 1 :]]


def _count_from_front(
    op_type: str, inputs: Sequence[Value | None], axes: Sequence[int], needs_rank: bool
) -> list[int] | None:
    """Axes as non-negative numbers; None if they are that already, or if the rank is unknown."""
    if all(axis >= 0 for axis in axes):
        return None
    # All inputs of Concat have one rank, which need not be known of the first.
    operands = inputs if op_type == "Concat" else inputs[:1]
    shapes = (value.shape for value in operands if value is not None)
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    if rank is None:
        if needs_rank:
            raise UnsupportedError(
                "an axis counts from the end of a tensor of unknown rank", first_opset=NEGATIVE_AXES
            )
        return None
    rank += len(axes) if op_type == "Unsqueeze" else op_type in _GAINS_ONE
    return [axis + rank if axis < 0 else axis for axis in axes]

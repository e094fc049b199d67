"""Causal masks that are computed from lengths.

    LessOrEqual(keys, queries)         or Less, Greater, GreaterOrEqual or Not with the same meaning
    Trilu(ones, upper=0)               as bools, or compared with 0
    Trilu(lowest, 1, upper=1)          a mask that is added

`keys` is a row of 0, 1, 2 and so on, and `queries` is a column of it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from ...constants.initializers import Initializers
from ...node_pass import producer_of
from ...pattern_matcher import constant_operand, number
from ..axes import added_axes
from .mask_numbers import contents

_ROW, _COLUMN = -1, -2
_POSITIONS = ("Unsqueeze", "Reshape", "Cast", "Range")
_FORWARDING = ("Not", "Cast", "Unsqueeze")
_KEEPING = {"LessOrEqual": [_ROW, _COLUMN], "GreaterOrEqual": [_COLUMN, _ROW]}
_MASKING = {"Greater": [_ROW, _COLUMN], "Less": [_COLUMN, _ROW]}
"""Comparisons that hold for visible keys, or for masked ones, and the axis along which each input counts."""


def is_causal_condition(initializers: Initializers, condition: ir.Value | None, keeps: bool) -> bool:
    """Whether a condition keeps exactly the keys up to the query's own position.

    Args:
        keeps: the value of the condition for the keys that take part.
    """
    node = producer_of(condition, *_FORWARDING, "Equal", "Trilu", *_KEEPING, *_MASKING)
    while node is not None and node.op_type in _FORWARDING:
        added = added_axes(node) if node.op_type == "Unsqueeze" else []
        # The last two axes of the mask must remain those of queries and keys.
        if added is None or any(axis >= _COLUMN for axis in added):
            return False
        # Not exchanges the meaning of True and False.
        keeps = keeps != (node.op_type == "Not")
        node = producer_of(node.inputs[0], *_FORWARDING, "Equal", "Trilu", *_KEEPING, *_MASKING)
    if node is None:
        return False
    if node.op_type == "Trilu":
        return _is_triangle(initializers, node, keeps, lambda element: element != 0)
    if node.op_type == "Equal":
        comparison = constant_operand(node)
        triangle = (
            producer_of(comparison[0], "Trilu") if comparison is not None and comparison[1] == 0 else None
        )
        return triangle is not None and _is_triangle(
            initializers, triangle, not keeps, lambda element: element != 0
        )
    expected_axes = (_KEEPING if keeps else _MASKING).get(node.op_type)
    return expected_axes is not None and [_counted_axis(value) for value in node.inputs] == expected_axes


def is_causal_mask(initializers: Initializers, mask: ir.Value, lowest: float) -> bool:
    """Whether a mask adds 0 to the scores up to the query's own position, and at most `lowest` to others."""
    triangle = producer_of(mask, "Trilu")
    if triangle is not None:
        return _is_triangle(initializers, triangle, False, lambda element: element <= lowest)
    choice = producer_of(mask, "Where")
    if choice is None:
        return False
    numbers = [number(value) for value in choice.inputs[1:]]
    for keeps, (kept_number, masked_number) in ((True, numbers), (False, numbers[::-1])):
        if kept_number == 0 and masked_number is not None and masked_number <= lowest:
            return is_causal_condition(initializers, choice.inputs[0], keeps)
    return False


def _is_triangle(
    initializers: Initializers, node: ir.Node, keeps: bool, test: Callable[[float], bool]
) -> bool:
    """Whether a Trilu has one number below or above the diagonal that a test accepts.

    Args:
        keeps: whether that number marks the keys that take part, from the diagonal downwards.
    """
    is_upper = node.attributes.get_int("upper", 1) == 1
    diagonal = number(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else 0
    if (is_upper, diagonal) != ((False, 0) if keeps else (True, 1)):
        return False
    filler = _uniform_number(initializers, node.inputs[0])
    return filler is not None and test(filler)


def _uniform_number(initializers: Initializers, value: ir.Value | None) -> float | None:
    """The number that all elements of a value are."""
    node = producer_of(value, "Expand", "Cast", "ConstantOfShape")
    while node is not None and node.op_type != "ConstantOfShape":
        value = node.inputs[0]
        node = producer_of(value, "Expand", "Cast", "ConstantOfShape")
    if node is not None:
        # Without the attribute, ConstantOfShape gives zeros.
        filler = node.attributes.get("value")
        return 0.0 if filler is None else float(filler.as_tensor().numpy().item())
    array = contents(initializers, value)
    is_uniform = array is not None and array.size > 0 and bool((array == array.flat[0]).all())
    return float(array.flat[0]) if array is not None and is_uniform else None


def _counted_axis(value: ir.Value | None) -> int | None:
    """The negative axis along which a value is 0, 1, 2 and so on."""
    added_later: list[ir.Node] = []
    node = producer_of(value, *_POSITIONS)
    while node is not None and node.op_type != "Range":
        if node.op_type != "Cast":
            added_later.append(node)
        node = producer_of(node.inputs[0], *_POSITIONS)
    if node is None or [number(node.inputs[index]) for index in (0, 2)] != [0, 1]:
        return None
    axis = _ROW
    for reshaping in reversed(added_later):
        shape = reshaping.outputs[0].shape
        if shape is None:
            return None
        axes = range(-len(shape), 0)
        if reshaping.op_type == "Reshape":
            larger_axes = [candidate for candidate in axes if shape[candidate] != 1]
            # Several sizes would be rows of positions that go on in the next row.
            if len(larger_axes) != 1:
                return None
            axis = larger_axes[0]
            continue
        added = added_axes(reshaping)
        if added is None:
            return None
        axis = [candidate for candidate in axes if candidate not in added][axis]
    return axis

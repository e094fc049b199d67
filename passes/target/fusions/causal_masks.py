"""Causal masks that are computed from lengths.

    LessOrEqual(keys, queries)         or Less, Greater, GreaterOrEqual or Not with the same meaning
    Trilu(ones, upper=0)               as bools, or compared with 0
    Trilu(lowest, 1, upper=1)          a mask that is added

`keys` is a row of 0, 1, 2 and so on, and `queries` is a column of it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import maker_of
from .mask_numbers import contents
from .patterns import added_axes, constant_operand, number

_ROW, _COLUMN = -1, -2
_FORWARDING = ("Not", "Cast", "Unsqueeze")
_KEEPING = {"LessOrEqual": [_ROW, _COLUMN], "GreaterOrEqual": [_COLUMN, _ROW]}
_MASKING = {"Greater": [_ROW, _COLUMN], "Less": [_COLUMN, _ROW]}
"""Comparisons that hold for keys that take part, or for others, and the axes along which the inputs count."""


def is_causal_condition(known: Initializers, condition: ir.Value | None, keeps: bool) -> bool:
    """Whether a condition keeps exactly the keys up to the query's own position.

    Args:
        keeps: the value of the condition for the keys that take part.
    """
    node = maker_of(condition, *_FORWARDING, "Equal", "Trilu", *_KEEPING, *_MASKING)
    while node is not None and node.op_type in _FORWARDING:
        if node.op_type == "Unsqueeze" and not _keeps_last_axes(node):
            return False
        keeps = keeps != (node.op_type == "Not")
        node = maker_of(node.inputs[0], *_FORWARDING, "Equal", "Trilu", *_KEEPING, *_MASKING)
    if node is None:
        return False
    if node.op_type == "Trilu":
        return _is_triangle(known, node, keeps, lambda each: each != 0)
    if node.op_type == "Equal":
        found = constant_operand(node)
        triangle = maker_of(found[0], "Trilu") if found is not None and found[1] == 0 else None
        return triangle is not None and _is_triangle(known, triangle, not keeps, lambda each: each != 0)
    wanted = (_KEEPING if keeps else _MASKING).get(node.op_type)
    return wanted is not None and [_counted_axis(value) for value in node.inputs] == wanted


def is_causal_mask(known: Initializers, mask: ir.Value, lowest: float) -> bool:
    """Whether a mask adds 0 to the scores up to the query's own position, and at most `lowest` to others."""
    triangle = maker_of(mask, "Trilu")
    if triangle is not None:
        return _is_triangle(known, triangle, False, lambda each: each <= lowest)
    choice = maker_of(mask, "Where")
    if choice is None:
        return False
    numbers = [number(value) for value in choice.inputs[1:]]
    for keeps, (kept, masked) in ((True, numbers), (False, numbers[::-1])):
        if kept == 0 and masked is not None and masked <= lowest:
            return is_causal_condition(known, choice.inputs[0], keeps)
    return False


def _is_triangle(known: Initializers, node: ir.Node, keeps: bool, test: Callable[[float], bool]) -> bool:
    """Whether a Trilu has one number below or above the diagonal that a test accepts.

    Args:
        keeps: whether that number stands for the keys that take part, from the diagonal downwards.
    """
    upper = node.attributes.get("upper")
    diagonal = number(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else 0
    if (upper is None or upper.as_int() == 1, diagonal) != ((False, 0) if keeps else (True, 1)):
        return False
    found = _uniform_number(known, node.inputs[0])
    return found is not None and test(found)


def _uniform_number(known: Initializers, value: ir.Value | None) -> float | None:
    """The number that all elements of a value are."""
    node = maker_of(value, "Expand", "Cast", "ConstantOfShape")
    while node is not None and node.op_type != "ConstantOfShape":
        value = node.inputs[0]
        node = maker_of(value, "Expand", "Cast", "ConstantOfShape")
    if node is not None:
        filler = node.attributes.get("value")
        return 0.0 if filler is None else float(filler.as_tensor().numpy().item())
    array = contents(known, value)
    is_uniform = array is not None and array.size > 0 and bool((array == array.flat[0]).all())
    return float(array.flat[0]) if array is not None and is_uniform else None


def _counted_axis(value: ir.Value | None) -> int | None:
    """The negative axis along which a value is 0, 1, 2 and so on."""
    unsqueezes: list[ir.Node] = []
    node = maker_of(value, "Unsqueeze", "Cast", "Range")
    while node is not None and node.op_type != "Range":
        if node.op_type == "Unsqueeze":
            unsqueezes.append(node)
        node = maker_of(node.inputs[0], "Unsqueeze", "Cast", "Range")
    if node is None or [number(node.inputs[place]) for place in (0, 2)] != [0, 1]:
        return None
    axis = _ROW
    for unsqueeze in reversed(unsqueezes):
        added, shape = added_axes(unsqueeze), unsqueeze.outputs[0].shape
        if added is None or shape is None:
            return None
        axis = [each for each in range(-len(shape), 0) if each not in added][axis]
    return axis


def _keeps_last_axes(unsqueeze: ir.Node) -> bool:
    """Whether the last two axes are those of the operand."""
    added = added_axes(unsqueeze)
    return added is not None and all(axis < _COLUMN for axis in added)

"""Infers the sizes of results from constants, and from the sizes of operands and of vectors of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from ....registration.inference import constant_integers
from ....registration.inference.size_vectors import elements
from ....registration.inference.tensor_sizes import is_static
from ....registration.size_algebra.dimensions import (
    UNKNOWN,
    Dim,
    broadcast,
    least,
    product,
    quotient,
    same_size,
    total,
)

_END = 2**31 - 1
"""An end of a Slice from this number on means the end of the dimension."""
_STATIC = ("Pad", "Reshape", "Slice")


def static_sizes(node: ir.Node) -> list[int] | None:
    """The sizes of the result of a Pad, Reshape or Slice; None for other nodes, and if they are not known."""
    if node.op_type not in _STATIC or len(node.inputs) < 2:
        return None
    data = node.inputs[0]
    if data is None or data.shape is None or not is_static(data.shape):
        # Most results have a size with a name; only a Reshape to constants may lose it.
        target = constant_integers.integers(node.inputs[1]) if node.op_type == "Reshape" else None
        return target if target is not None and all(size > 0 for size in target) else None
    sizes = result_sizes(node)
    numbers = [size for size in sizes or () if isinstance(size, int) and size >= 0]
    return numbers if sizes is not None and len(numbers) == len(sizes) else None


def result_sizes(node: ir.Node) -> list[Dim] | None:
    """The sizes of a result, as far as they follow from the operands.

    None for operators besides ConstantOfShape, Expand, Pad, Range, Reshape and Slice, and for unknown ranks.
    """
    rule = RULES.get(node.op_type)
    # Before opset 10, Slice has its bounds as attributes, as Pad has before 11.
    if rule is None or (len(node.inputs) < 2 and node.op_type != "ConstantOfShape"):
        return None
    return rule(node)


def _integers(node: ir.Node, index: int, default: list[int]) -> list[int] | None:
    """The numbers of an input that is a constant; `default` if the node does not have it; else None."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return default if value is None else constant_integers.integers(value)


def _operand_sizes(node: ir.Node) -> list[Dim] | None:
    data = node.inputs[0]
    return None if data is None or data.shape is None else [*data.shape]


def _pad_sizes(node: ir.Node) -> list[Dim] | None:
    sizes, pads = _operand_sizes(node), constant_integers.integers(node.inputs[1])
    axes = None if sizes is None else _integers(node, 3, [*range(len(sizes))])
    if sizes is None or pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        if not -len(sizes) <= axis < len(sizes):
            return None
        sizes[axis] = total([sizes[axis], before + after])
    return sizes


def _reshape_sizes(node: ir.Node) -> list[Dim] | None:
    sizes, target = _operand_sizes(node), elements(node.inputs[1])
    if sizes is None or target is None:
        is_whole = target is not None and all(isinstance(size, int) and size > 0 for size in target)
        return target if is_whole else None
    allowzero = node.attributes.get("allowzero")
    if allowzero is None or not allowzero.as_int():
        # Such a target is invalid, because there is no size to copy.
        if any(size == 0 and index >= len(sizes) for index, size in enumerate(target)):
            return None
        target = [sizes[index] if size == 0 else size for index, size in enumerate(target)]
    # Sizes that both sides share cancel, so that the quotient may be a number.
    inferred: Dim = UNKNOWN
    if target.count(-1) == 1:
        inferred = quotient(_count(sizes), _count(size for size in target if size != -1))
    return [inferred if size == -1 else size for size in target]


def _count(sizes: Iterable[Dim]) -> Dim:
    count: Dim = 1
    for size in sizes:
        count = product(count, size)
    return count


def _expand_sizes(node: ir.Node) -> list[Dim] | None:
    data, sizes = _operand_sizes(node), elements(node.inputs[1])
    return None if data is None or sizes is None else [*broadcast([tuple(data), tuple(sizes)])]


def _slice_sizes(node: ir.Node) -> list[Dim] | None:
    sizes, starts, ends = _operand_sizes(node), elements(node.inputs[1]), elements(node.inputs[2])
    if sizes is None or starts is None:
        return None
    count, rank = len(starts), len(sizes)
    axes, steps = _integers(node, 3, [*range(count)]), _integers(node, 4, [1] * count)
    ends = [UNKNOWN] * count if ends is None else ends
    if axes is None or steps is None or not count == len(ends) == len(axes) == len(steps):
        return None
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -rank <= axis < rank or step == 0:
            return None
        sizes[axis] = _cut(sizes[axis], start, end, step)
    return sizes


def _cut(size: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The number of elements that a Slice takes along one dimension."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        # The bounds follow the rules of Python's slices.
        return len(range(*slice(start, end, step).indices(size)))
    # The size would depend on the start, which no symbol expresses.
    if (start, step) != (0, 1):
        return UNKNOWN
    if same_size(size, end) or (isinstance(end, int) and end >= _END):
        return size
    return least(size, end) if isinstance(size, int) and isinstance(end, ir.SymbolicDim) else UNKNOWN


def _range_sizes(node: ir.Node) -> list[Dim] | None:
    """The length of a Range from 0 to a size."""
    start, limit, step = (elements(value) for value in node.inputs)
    return limit if start == [0] and step == [1] else None


RULES: dict[str, Callable[[ir.Node], list[Dim] | None]] = {
    "ConstantOfShape": lambda node: elements(node.inputs[0]),
    "Expand": _expand_sizes,
    "Pad": _pad_sizes,
    "Range": _range_sizes,
    "Reshape": _reshape_sizes,
    "Slice": _slice_sizes,
}

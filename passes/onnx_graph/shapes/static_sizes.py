"""Infers the result sizes of Pad, Reshape and Slice from constants and static sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from ....registration.emission import constant_integers


def static_sizes(node: ir.Node) -> list[int] | None:
    """The sizes of the result of a Pad, Reshape or Slice; None for other nodes, and if they are not known."""
    if node.op_type not in _RULES or len(node.inputs) < 2:
        return None
    data, target = node.inputs[0], integers(node, 1)
    if node.op_type == "Reshape" and target is not None and all(size > 0 for size in target):
        return target
    if data is None or data.shape is None or not data.shape.is_static():
        return None
    sizes = [int(size) for size in data.shape.numpy()]
    return _RULES[node.op_type](node, sizes)


def cut_size(size: int, start: int, end: int, step: int) -> int:
    """The size of a dimension after Slice, whose bounds follow the rules of Python's slices."""
    return len(range(*slice(start, end, step).indices(size)))


def integers(node: ir.Node, index: int, default: list[int] | None = None) -> list[int] | None:
    """The numbers of an input that is a constant; `default` if the node does not have it; else None."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return default
    return constant_integers.integers(value)


def _pad_sizes(node: ir.Node, sizes: list[int]) -> list[int] | None:
    pads, axes = integers(node, 1), integers(node, 3, [*range(len(sizes))])
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        if not -len(sizes) <= axis < len(sizes):
            return None
        sizes[axis] += before + after
    return sizes


def _reshape_sizes(node: ir.Node, sizes: list[int]) -> list[int] | None:
    target, allowzero = integers(node, 1), node.attributes.get("allowzero")
    if target is None or target.count(-1) > 1:
        return None
    if allowzero is None or not allowzero.as_int():
        # Such a target is invalid, because there is no size to copy.
        if any(size == 0 and index >= len(sizes) for index, size in enumerate(target)):
            return None
        target = [size or sizes[index] for index, size in enumerate(target)]
    known_product = math.prod(size for size in target if size != -1)
    if -1 not in target:
        return target
    return (
        None
        if known_product <= 0
        else [math.prod(sizes) // known_product if size == -1 else size for size in target]
    )


def _slice_sizes(node: ir.Node, sizes: list[int]) -> list[int] | None:
    starts, ends = integers(node, 1), integers(node, 2)
    if starts is None or ends is None:
        return None
    axes = integers(node, 3, [*range(len(starts))])
    steps = integers(node, 4, [1] * len(starts))
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -len(sizes) <= axis < len(sizes) or step == 0:
            return None
        sizes[axis] = cut_size(sizes[axis], start, end, step)
    return sizes


_RULES: dict[str, Callable[[ir.Node, list[int]], list[int] | None]] = {
    "Pad": _pad_sizes,
    "Reshape": _reshape_sizes,
    "Slice": _slice_sizes,
}

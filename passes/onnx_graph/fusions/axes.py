"""The axes of nodes in written-out operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ....registration.inference.constant_integers import argument


def reduced_axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction that keeps its dimensions, from an attribute or a constant; None if unknown."""
    return argument(node, "axes", 1) if node.attributes.get_int("keepdims", 1) == 1 else None


def added_axes(unsqueeze: ir.Node) -> list[int] | None:
    """The axes that an Unsqueeze adds, as negative numbers; None if they or the rank are unknown."""
    result, axes = unsqueeze.outputs[0].shape, argument(unsqueeze, "axes", 1)
    if result is None or axes is None:
        return None
    # Counted from the end, axes are comparable between values of different ranks.
    return [axis % len(result) - len(result) for axis in axes]


def is_last_axis(axes: Sequence[int] | None, value: ir.Value) -> bool:
    """Whether axes are the last one of a value."""
    if axes is None:
        return False
    return [*axes] == [-1] or (value.shape is not None and [*axes] == [len(value.shape) - 1])


def reduces_last_axis(node: ir.Node, x: ir.Value) -> bool:
    """Whether a reduction of a value of the shape of x takes the last axis, and keeps it."""
    return is_last_axis(reduced_axes(node), x)

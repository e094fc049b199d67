"""Differences of neighbours in consecutive positions, which are 1.

transformers finds the borders of packed sequences by `torch.diff` of the position numbers, with a number
before the first position. Positions that are a Range have no border.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import producer_of

_LAST = 2**31 - 1
"""Exporters write this number or a larger one for the end of a Slice."""


class ConsecutivePositions:
    """Finds tensors whose neighbours along their last axis differ by 1."""

    def __init__(self, initializers: Initializers):
        self._initializers = initializers

    def is_difference(self, node: ir.Node) -> bool:
        """Whether a Sub subtracts from each position along the last axis the one before it."""
        later, earlier = (producer_of(value, "Slice") for value in node.inputs)
        if later is None or earlier is None or later.inputs[0] is not earlier.inputs[0]:
            return False
        after, before = self._slice_bounds(later), self._slice_bounds(earlier)
        # The end of the later positions is any number that lies beyond every length.
        if after is None or before != (0, -1) or after[0] != 1 or after[1] < _LAST:
            return False
        return self._are_consecutive(later.inputs[0])

    def _are_consecutive(self, value: ir.Value | None) -> bool:
        """Whether neighbours differ by 1. A tensor with one position has no neighbours."""
        node = value.producer() if value is not None else None
        if node is None or value is None or node.domain or not node.inputs:
            return False
        data = node.inputs[0]
        match node.op_type:
            case "Range":
                step = self._initializers.small_array(node.inputs[2])
                return step is not None and step.dtype.kind == "i" and int(step) == 1
            case "Unsqueeze" | "Squeeze" | "Reshape":
                # Positions of one axis stay in order if only axes of size 1 are added or removed before them.
                shapes = (value.shape, data.shape if data is not None else None)
                if any(not shape or any(size != 1 for size in shape[:-1]) for shape in shapes):
                    return False
                return self._are_consecutive(data)
            case "Expand":
                # An Expand may repeat a single position.
                shape, source = value.shape, data.shape if data is not None else None
                if not shape or not source or source[-1] != shape[-1]:
                    return False
                return shape[-1] != ir.SymbolicDim(None) and self._are_consecutive(data)
            case "Gather":
                return self._selects_rows(node) and self._are_consecutive(data)
            case "Concat":
                return self._prepends_predecessor(node)
        return False

    def _selects_rows(self, node: ir.Node) -> bool:
        """Whether a Gather selects one index of an axis other than the last one."""
        data, index = node.inputs
        rank = None if data is None or data.shape is None else len(data.shape)
        array = self._initializers.small_array(index)
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        return rank is not None and array is not None and array.ndim == 0 and axis % rank < rank - 1

    def _prepends_predecessor(self, node: ir.Node) -> bool:
        """Whether a Concat puts the number before the first position in front of consecutive positions."""
        if len(node.inputs) != 2 or not _is_last_axis(node.attributes["axis"].as_int(), node.outputs[0]):
            return False
        first, positions = node.inputs
        difference = producer_of(first, "Sub")
        if difference is None or not self._are_consecutive(positions):
            return False
        selected, subtrahend = difference.inputs
        selection = producer_of(selected, "Slice")
        number = self._initializers.small_array(subtrahend)
        # A vector of ones would have a second element for a second position.
        subtracts_one = number is not None and number.size == 1 and number.ravel()[0] == 1
        is_first = selection is not None and self._slice_bounds(selection) == (0, 1)
        return subtracts_one and is_first and selection is not None and selection.inputs[0] is positions

    def _slice_bounds(self, node: ir.Node) -> tuple[int, int] | None:
        """The start and the end of a Slice of the last axis with a step of 1; None for other nodes."""
        if node.op_type != "Slice" or node.domain:
            return None
        arguments = [
            self._initializers.integers(node, name, position)
            for position, name in enumerate(("starts", "ends", "axes"), start=1)
        ]
        starts, ends, axes = arguments
        if starts is None or ends is None or axes is None or not len(starts) == len(axes) == 1:
            return None
        step = self._initializers.small_array(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        is_simple = step is not None and bool(np.all(step == 1)) and _is_last_axis(axes[0], node.outputs[0])
        return (starts[0], ends[0]) if is_simple else None


def _is_last_axis(axis: int, value: ir.Value) -> bool:
    return axis == -1 or (value.shape is not None and axis == len(value.shape) - 1)

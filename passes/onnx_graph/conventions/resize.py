"""ONNX pass: writes Resize by sizes or by scales, because some targets read only one of them.

1. The shape of the input is known, and the size of every dimension of the result is a whole number.
2. Both forms must be equivalent: the scale that ONNX derives from a size, in single precision, equals the
   original scale, and the size that it derives from a scale equals the original size.
3. Not with a region of interest or an aspect ratio to keep, and not below opset 11, which has no sizes.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ..constants.initializers import Initializers
from ..node_pass import ConstantPass


class ResizeBy(ConstantPass):
    """Rewrites constant scales as sizes (`"sizes"`), or the other way round (`"scales"`)."""

    op_types = ("Resize",)

    def __init__(self, form: str, initializers: Initializers):
        super().__init__(initializers)
        self._form = form

    def rewrite(self, node: ir.Node) -> bool:
        """Write the other input, if it is equivalent."""
        schema = self.schema("Resize")
        if schema is None or "sizes" not in schema.input_index:
            return False
        requires_scales = not schema.inputs[schema.input_index["scales"]].optional
        inputs = [*node.inputs, *[None] * (4 - len(node.inputs))]
        lengths = self._lengths(node, inputs[0])
        by_scales = self._form == "sizes"
        current = inputs[2] if by_scales else inputs[3]
        if (
            lengths is None
            or current is None
            or current.const_value is None
            or not self.initializers.is_constant(current)
        ):
            return False
        numbers = current.const_value.numpy()
        if len(numbers) != len(lengths):
            return False
        converted = _sizes(lengths, numbers) if by_scales else _scales(lengths, numbers)
        if converted is None:
            return False
        inputs[3 if by_scales else 2] = self.initializers.make(converted, f"{current.name}_{self._form}")
        empty = (
            self.initializers.make(np.empty(0, np.float32), "no_scales")
            if by_scales and requires_scales
            else None
        )
        inputs[2 if by_scales else 3] = empty
        # Optional inputs at the end are left out rather than empty.
        while inputs[-1] is None:
            inputs.pop()
        node.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            node.replace_input_with(index, value)
        return True

    def _lengths(self, node: ir.Node, data: ir.Value | None) -> list[int] | None:
        """The lengths of the resized dimensions; None if one is unknown, or if the node must stay."""
        # Its scales are relative to the region, not to the whole dimension.
        if node.attributes.get_string("coordinate_transformation_mode") == "tf_crop_and_resize":
            return None
        # The sizes are then limits, not the result's sizes.
        if node.attributes.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        if data is None or data.shape is None:
            return None
        axes = node.attributes.get_ints("axes", range(len(data.shape)))
        lengths = [length for length in (data.shape[axis] for axis in axes) if isinstance(length, int)]
        return lengths if len(lengths) == len(axes) else None


def _sizes(lengths: list[int], scales: np.ndarray) -> np.ndarray | None:
    """The sizes that mean exactly the same as the scales, or None."""
    sizes = [round(length * float(scale)) for length, scale in zip(lengths, scales, strict=True)]
    return np.array(sizes, np.int64) if _agree(lengths, sizes, scales) else None


def _scales(lengths: list[int], sizes: np.ndarray) -> np.ndarray | None:
    """The scales that mean exactly the same as the sizes, or None."""
    if 0 in lengths:
        return None
    pairs = zip(sizes, lengths, strict=True)
    scales = np.array([np.float32(float(size) / length) for size, length in pairs], np.float32)
    return scales if _agree(lengths, [int(size) for size in sizes], scales) else None


def _agree(lengths: list[int], sizes: list[int], scales: np.ndarray) -> bool:
    return all(
        length > 0
        # Interpolation reads the scale itself, so sizes must give the same one, bit for bit.
        and np.float32(size / length) == scale
        and math.floor(np.float32(length) * np.float32(scale)) == size
        for length, size, scale in zip(lengths, sizes, scales, strict=True)
    )

"""Target pass: writes Resize by sizes or by scales, because some consumers read only one of them.

1. The shape of the input is known, and the size of every dimension of the result is a whole number.
2. The other form says exactly the same: the scale that ONNX derives from a size, in single precision, is the
   scale that was given, and the size that it derives from a scale is the size that was given.
3. Not with a region of interest or an aspect ratio to keep, and not below opset 11, which has no sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
        """Write the other input, if it says the same."""
        schema = self.schema("Resize")
        if schema is None or "sizes" not in schema.input_index:
            return False
        demanded = not schema.inputs[schema.input_index["scales"]].optional
        inputs = [*node.inputs, *[None] * (4 - len(node.inputs))]
        lengths = self._lengths(node, inputs[0])
        by_scales = self._form == "sizes"
        given = inputs[2] if by_scales else inputs[3]
        if lengths is None or given is None or given.const_value is None or not self.known.is_constant(given):
            return False
        numbers = given.const_value.numpy()
        if len(numbers) != len(lengths):
            return False
        found = _sizes(lengths, numbers) if by_scales else _scales(lengths, numbers)
        if found is None:
            return False
        inputs[3 if by_scales else 2] = self.known.make(found, f"{given.name}_{self._form}")
        empty = self.known.make(np.empty(0, np.float32), "no_scales") if by_scales and demanded else None
        inputs[2 if by_scales else 3] = empty
        while inputs[-1] is None:
            inputs.pop()
        node.resize_inputs(len(inputs))
        for place, value in enumerate(inputs):
            node.replace_input_with(place, value)
        return True

    def _lengths(self, node: ir.Node, data: ir.Value | None) -> list[int] | None:
        """The lengths of the resized dimensions; None if one is unknown, or if the node must stay."""
        mode = node.attributes.get("coordinate_transformation_mode")
        policy = node.attributes.get("keep_aspect_ratio_policy")
        if mode is not None and mode.as_string() == "tf_crop_and_resize":
            return None
        if policy is not None and policy.as_string() != "stretch":
            return None
        if data is None or data.shape is None:
            return None
        axes = node.attributes.get("axes")
        places: Sequence[int] = range(len(data.shape)) if axes is None else axes.as_ints()
        lengths = [data.shape[place] for place in places]
        return (
            [n for n in lengths if isinstance(n, int)] if all(isinstance(n, int) for n in lengths) else None
        )


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
        and np.float32(size / length) == scale
        and math.floor(np.float32(length) * np.float32(scale)) == size
        for length, size, scale in zip(lengths, sizes, scales, strict=True)
    )

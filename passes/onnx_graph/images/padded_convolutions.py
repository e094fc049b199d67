"""ONNX passes: move a Pad of zeros before a Conv, and a Slice behind it, into the padding of the Conv.

1. The Pad has constant, non-negative pads of the spatial dimensions only, and no other reader.
2. The Conv has the `auto_pad` NOTSET or VALID.
3. The Slice takes the first elements along one axis, along which the Conv has a stride of 1, and leaves out
   at most as many as the padding behind the data has: a causal convolution.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import polynomial_of
from ..node_pass import ConstantPass, exclusive_producer, removable_producer, replace_by_value
from ..pass_order import Run


class FoldPadding(ConstantPass):
    """Removes Pads before convolutions."""

    runs = (
        Run("basic", after={"RemoveFoldedIdentities": "A copy between Pad and Conv would hide the Pad."}),
    )
    op_types = ("Conv",)

    def rewrite(self, node: ir.Node) -> bool:
        """Let a Conv pad as the Pad before it does."""
        pad = removable_producer(node, node.inputs[0], "Pad")
        if pad is None or pad.inputs[0] is None:
            return False
        form = node.attributes.get_string("auto_pad", "NOTSET")
        pads = self._zeros(pad)
        if pads is None or form not in ("NOTSET", "VALID"):
            return False
        rank = len(pads) // 2
        if any(size < 0 for size in pads) or any(pads[axis] or pads[rank + axis] for axis in (0, 1)):
            return False
        conv_pads = None if form == "VALID" else node.attributes.get_ints("pads")
        numbers = [0] * (2 * (rank - 2)) if conv_pads is None else conv_pads
        outer = [*pads[2:rank], *pads[rank + 2 :]]
        if len(numbers) != len(outer):
            return False
        # VALID means no padding, which the explicit pads replace.
        node.attributes.pop("auto_pad", None)
        node.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(numbers, outer, strict=True)])
        node.replace_input_with(0, pad.inputs[0])
        return True

    def _zeros(self, pad: ir.Node) -> list[int] | None:
        """The pads of a Pad by zeros of all dimensions."""
        if pad.attributes.get_string("mode", "constant") != "constant" or len(pad.inputs) > 3:
            return None
        if pad.attributes.get_float("value", 0.0) != 0:
            return None
        if len(pad.inputs) > 2 and pad.inputs[2] is not None:
            number = self.initializers.small_array(pad.inputs[2])
            if number is None or number.any():
                return None
        return self.initializers.integers(pad, "pads", 1)


class CropPadding(ConstantPass):
    """Removes Slices that leave out what a convolution computes of the padding behind its data."""

    runs = (Run("full", after={"RefineAndFold": "The sizes before and behind the Slice must be known."}),)
    op_types = ("Slice",)

    def rewrite(self, node: ir.Node) -> bool:
        """Let the Conv before a Slice pad less."""
        conv, result = exclusive_producer(node.inputs[0], "Conv"), node.outputs[0]
        axes, starts = (self.initializers.integers(node, name, i) for name, i in (("axes", 3), ("starts", 1)))
        steps = self.initializers.small_array(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        if conv is None or conv.graph is not node.graph or starts != [0] or axes is None or len(axes) != 1:
            return False
        shape, full_shape = result.shape, conv.outputs[0].shape
        pads = conv.attributes.get_ints("pads")
        if shape is None or full_shape is None or pads is None or steps is None or (steps != 1).any():
            return False
        axis, rank = axes[0] % len(shape), len(shape) - 2
        strides = conv.attributes.get_ints("strides") or [1] * rank
        has_auto_pad = conv.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
        sizes = (shape[axis], full_shape[axis])
        is_known = all(isinstance(size, int) or size.value is not None for size in sizes)
        if axis < 2 or strides[axis - 2] != 1 or has_auto_pad or not is_known:
            return False
        surplus = (polynomial_of(sizes[1]) - polynomial_of(sizes[0])).number
        end = rank + axis - 2
        if surplus is None or not 0 < surplus <= pads[end]:
            return False
        new_pads = [size - surplus * (position == end) for position, size in enumerate(pads)]
        conv.attributes["pads"] = ir.AttrInt64s("pads", new_pads)
        conv.outputs[0].shape = shape
        replace_by_value(node, conv.outputs[0])
        return True

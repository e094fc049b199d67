"""ONNX pass: moves a Pad of zeros into the padding of the Conv after it.

1. The Pad has constant, non-negative pads of the spatial dimensions only, and no other reader.
2. The Conv has the `auto_pad` NOTSET or VALID.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import ConstantPass, removable_producer
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

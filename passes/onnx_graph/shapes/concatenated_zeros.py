"""ONNX pass: writes a Concat with zeros of a computed shape as a Pad.

    Concat(ConstantOfShape(…), x)      becomes      Pad(x)

1. Along the axis the number of zeros is known.
2. Only such nodes read the zeros, so that their shape need not be computed any more.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, producer_of, remove_unread, replace_node
from ..pass_order import Run

_PADDED = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Runtimes have Pad for these element types."""


class PadConcatenated(ConstantPass):
    """Replaces a Concat of a tensor and zeros by a Pad."""

    runs = (Run("basic", after={"RemoveUniformValues": "It evaluates what only reads zeros."}),)
    op_types = ("Concat",)

    def begin(self, model: ir.Model) -> bool:
        """Forget the readers of another model's values."""
        # Asking all readers of one value for each of them would take quadratic time.
        self._are_zeros: dict[ir.Value, bool] = {}
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a Concat of one tensor with zeros in front of it, behind it, or both."""
        fills = {index: self._zeros(value) for index, value in enumerate(node.inputs)}
        tensors = [index for index, fill in fills.items() if fill is None]
        x, result = node.inputs[tensors[0]] if len(tensors) == 1 else None, node.outputs[0]
        if x is None or x.dtype not in _PADDED or x.shape is None or result.is_graph_output():
            return False
        axis = node.attributes["axis"].as_int() % len(x.shape)
        counts = []
        for fill in fills.values():
            shape = None if fill is None else fill.outputs[0].shape
            counts.append(None if shape is None else shape[axis])
        pads = [0] * (2 * len(x.shape))
        for index, count in enumerate(counts):
            if index != tensors[0]:
                if not isinstance(count, int):
                    return False
                pads[axis + len(x.shape) * (index > tensors[0])] += count
        self._pad(node, x, pads)
        for fill in fills.values():
            if fill is not None:
                remove_unread(fill)
        return True

    def _pad(self, node: ir.Node, x: ir.Value, pads: list[int]) -> None:
        schema = self.schema("Pad")
        # The sizes are an input from opset 11 on.
        if schema is not None and "pads" in schema.input_index:
            replace_node(node, "Pad", [x, self.initializers.make(np.array(pads, np.int64), "pads")])
        else:
            replace_node(node, "Pad", [x], [ir.AttrInt64s("pads", pads)])

    def _zeros(self, value: ir.Value | None) -> ir.Node | None:
        """The ConstantOfShape that fills an operand with zeros that only Concats read."""
        fill = producer_of(value, "ConstantOfShape")
        if value is None or fill is None:
            return None
        if value not in self._are_zeros:
            number = fill.attributes.get("value")
            is_zero = number is None or not number.as_tensor().numpy().any()
            readers = (reader.op_type for reader, _ in value.uses())
            self._are_zeros[value] = (
                is_zero and not value.is_graph_output() and all(name == "Concat" for name in readers)
            )
        return fill if self._are_zeros[value] else None

"""Target pass: removes the replacement of NaN behind a Softmax whose rows always have a finite score.

    Where(IsNaN(p), 0, p) with p = Softmax(MatMul(q, k) + mask)  -> p

torch.onnx writes it for masked attention, and MNN, OpenCV 4 and others do not know IsNaN.

1. Softmax gives NaN for a row of which all scores are -inf, and for NaN or inf among them. Here the mask is a
   constant that leaves a finite score in each row, or there is none, and the scores come from a MatMul,
   perhaps times a constant. So the result differs only where the product itself is NaN or infinite.
2. A mask that is computed, such as that of an input, may fill a row: the replacement stays.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..fusions.mask_numbers import floats, leaves_scores
from ..node_pass import ConstantPass, maker_of, replace_by_value

_SCALES = ("Mul", "Div")


class RemoveNaNReplacements(ConstantPass):
    """Removes `Where(IsNaN(p), 0, p)` where p has no NaN for finite products."""

    op_types = ("Where",)

    def rewrite(self, node: ir.Node) -> bool:
        """Let the readers of the Where read the Softmax."""
        test, kept = maker_of(node.inputs[0], "IsNaN"), node.inputs[2]
        softmax = maker_of(kept, "Softmax")
        if test is None or softmax is None or kept is None or test.inputs[0] is not kept:
            return False
        if node.outputs[0].is_graph_output() or softmax.graph is not node.graph:
            return False
        other = node.inputs[1]
        if other is None or not self.known.is_constant(other) or not _keeps_shape(other, kept):
            return False
        if not self._has_finite_rows(softmax):
            return False
        replace_by_value(node, kept)
        return True

    def _has_finite_rows(self, softmax: ir.Node) -> bool:
        """Whether each row that a Softmax reads has a finite score, and none has NaN or inf."""
        scores = softmax.inputs[0]
        if self._is_product(scores):
            return True
        total = maker_of(scores, "Add")
        axis = softmax.attributes.get("axis")
        if total is None or scores is None or scores.shape is None:
            return False
        last = len(scores.shape) - 1
        # Below opset 13 a row is all dimensions from the axis on.
        schema = self.schema("Softmax")
        place = axis.as_int() if axis is not None else schema.attributes["axis"].default if schema else None
        if place not in (-1, last):
            return False
        a, b = total.inputs
        return any(
            self._is_product(product) and leaves_scores(floats(self.known, mask))
            for product, mask in ((a, b), (b, a))
        )

    def _is_product(self, value: ir.Value | None) -> bool:
        """Whether a value is a MatMul, perhaps times a finite constant."""
        scaled = maker_of(value, *_SCALES)
        if scaled is not None:
            value, factor = scaled.inputs
            numbers = floats(self.known, factor)
            if numbers is None or not np.isfinite(numbers).all() or (numbers == 0).any():
                return False
        return maker_of(value, "MatMul") is not None


def _keeps_shape(constant: ir.Value, value: ir.Value) -> bool:
    """Whether a constant of one element does not raise the rank of a value that it is broadcast with."""
    tensor = constant.const_value
    if tensor is None or tensor.size != 1:
        return False
    return not len(tensor.shape) or (value.shape is not None and len(tensor.shape) <= len(value.shape))

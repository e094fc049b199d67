"""ONNX pass: removes the replacement of NaN after a Softmax, or writes it without IsNaN.

    Where(IsNaN(p), 0, p) with p = Softmax(MatMul(q, k) + mask)  -> p
    Where(IsNaN(p), 0, p) with p = Softmax(.)                    -> Where(p > -1, p, 0)

torch.onnx writes it for masked attention, and MNN, OpenCV 4 and others do not know IsNaN.

1. Softmax computes NaN for a row of which all scores are -inf, or that has NaN or inf. Here the mask is a
   constant that leaves a finite score in each row, or holds finite numbers only, or there is none, and the
   scores come from a MatMul, perhaps times a constant. So the result differs only where the product itself
   is NaN or infinite.
2. A mask of -inf that is computed, such as that of an input, may fill a row: the second form gives the same
   numbers, because the results of Softmax are not negative.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.runtimes import has_kernel
from ..fusions.attention.mask_numbers import floats, leaves_scores, numbers_of
from ..node_pass import ConstantPass, insert_node, keeps_shape, producer_of, remove_unread, replace_by_value
from ..pass_order import Run
from ..pattern_matcher import op, value

_SCALES = ("Mul", "Div")
_WEIGHTS = op("Softmax").label("weights")
_REPLACEMENT = op("Where", op("IsNaN", _WEIGHTS).label("test"), value("filler"), _WEIGHTS)


class RemoveNaNReplacements(ConstantPass):
    """Removes `Where(IsNaN(p), 0, p)` where p has no NaN for finite products, and IsNaN elsewhere."""

    runs = (Run("full", after={"FuseAttention": "The replacement tells that Attention may be used."}),)
    op_types = ("Where",)

    def rewrite(self, node: ir.Node) -> bool:
        """Let the readers of the Where read the Softmax."""
        match = _REPLACEMENT.find(node, is_closed=False)
        if match is None:
            return False
        softmax, weights, filler = match.node("weights"), match["weights"], match["filler"]
        # An output must keep its name, and a sub-graph its own values.
        if node.outputs[0].is_graph_output() or softmax.graph is not node.graph:
            return False
        if not self.initializers.is_constant(filler) or not _keeps_shape(filler, weights):
            return False
        if self._has_finite_rows(softmax):
            replace_by_value(node, weights)
            return True
        if weights.dtype is None or not has_kernel("Greater", weights.dtype):
            return False
        bound = self.initializers.make(np.array(-1, dtype=weights.dtype.numpy()), "negative")
        inputs, dtype = [weights, bound], ir.DataType.BOOL
        is_number = insert_node(node, self.initializers, "Greater", inputs, weights.shape, dtype=dtype)
        for index, operand in enumerate((is_number, weights, filler)):
            node.replace_input_with(index, operand)
        remove_unread(match.node("test"))
        return True

    def _has_finite_rows(self, softmax: ir.Node) -> bool:
        """Whether each row that a Softmax reads has a finite score, and none has NaN or inf."""
        scores = softmax.inputs[0]
        if self._is_product(scores):
            return True
        total = producer_of(scores, "Add")
        axis = softmax.attributes.get("axis")
        if total is None or scores is None or scores.shape is None:
            return False
        last = len(scores.shape) - 1
        # Before opset 13 a row spans all dimensions from the axis on.
        schema = self.schema("Softmax")
        axis_number = (
            axis.as_int() if axis is not None else schema.attributes["axis"].default if schema else None
        )
        if axis_number not in (-1, last):
            return False
        a, b = total.inputs
        for product, mask in ((a, b), (b, a)):
            if not self._is_product(product):
                continue
            if leaves_scores(floats(self.initializers, mask)):
                return True
            if not numbers_of(self.initializers, mask).infinite:
                return True
        return False

    def _is_product(self, value: ir.Value | None) -> bool:
        """Whether a value is a MatMul, perhaps times a finite constant."""
        scaled = producer_of(value, *_SCALES)
        if scaled is not None:
            value, factor = scaled.inputs
            numbers = floats(self.initializers, factor)
            if numbers is None or not np.isfinite(numbers).all() or (numbers == 0).any():
                return False
        return producer_of(value, "MatMul") is not None


def _keeps_shape(constant: ir.Value, value: ir.Value) -> bool:
    """Whether a constant of one element does not raise the rank of a value that it is broadcast with."""
    tensor = constant.const_value
    return tensor is not None and tensor.size == 1 and keeps_shape(value, tuple(tensor.shape.numpy()))

"""ONNX pass: in routers of experts, applies Softmax to the largest logits only, instead of to all logits.

    Softmax -> TopK -> values / ReduceSum(values)
    TopK -> Softmax of the values

Both are the exponentials of the largest logits, divided by their sum.

1. Softmax, TopK and the sum work on the last axis, and the sum keeps it.
2. Nothing else reads the probabilities or their largest values, and no graph returns them.
3. The element type is FLOAT or DOUBLE: in half precision, different logits often have equal probabilities.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import ConstantPass, exclusive_producer, producer_of, replace_node
from ..pass_order import Run
from .axes import is_last_axis, reduces_last_axis

_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


class NormalizeTopLogits(ConstantPass):
    """Replaces the normalized largest probabilities by a Softmax of the largest logits."""

    runs = (Run("full", after={"FoldSmallResults": "The axes must be constants."}),)
    op_types = ("Div",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a quotient of the largest probabilities and their sum."""
        values, total = node.inputs
        top, reduction = producer_of(values, "TopK"), exclusive_producer(total, "ReduceSum")
        if top is None or reduction is None or values is None or reduction.inputs[0] is not values:
            return False
        softmax = exclusive_producer(top.inputs[0], "Softmax")
        readers = {reader for reader, _ in values.uses()}
        if softmax is None or values is not top.outputs[0] or readers != {node, reduction}:
            return False
        logits = softmax.inputs[0]
        if logits is None or logits.dtype not in _TYPES or values.is_graph_output():
            return False
        if any(reader.graph is not softmax.graph for reader in (top, reduction, node)):
            return False
        # The default axis of Softmax was 1 before opset 13, and is written if it is not the last one.
        default = -1 if self.opset >= 13 else 1
        axes = [softmax.attributes.get_int("axis", default)], [top.attributes.get_int("axis", -1)]
        if not all(is_last_axis(axis, logits) for axis in axes) or not reduces_last_axis(reduction, values):
            return False
        if top.attributes.get_int("largest", 1) != 1:
            return False
        top.replace_input_with(0, logits)
        replace_node(node, "Softmax", [values], [ir.AttrInt64("axis", -1)])
        return True

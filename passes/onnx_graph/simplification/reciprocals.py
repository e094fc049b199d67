"""ONNX pass: writes a product with a Reciprocal as a quotient, which is one node instead of two.

    Mul(x, Reciprocal(y))  -> Div(x, y)

1. Nothing else reads the Reciprocal. The quotient is rounded once, the product twice.
2. In this form onnxruntime recognises root-mean-square normalization.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass, removable_producer, replace_node


class DivideByReciprocals(NodePass):
    """Replaces products with Reciprocals by quotients."""

    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a product, if one factor is a Reciprocal."""
        a, b = node.inputs
        for number, factor in ((a, b), (b, a)):
            reciprocal = removable_producer(node, factor, "Reciprocal")
            if reciprocal is not None and reciprocal.graph is not None:
                replace_node(node, "Div", [number, reciprocal.inputs[0]])
                reciprocal.graph.remove(reciprocal, safe=True)
                return True
        return False

"""Target pass: writes a product with a Reciprocal as a quotient, which is one node instead of two.

    Mul(x, Reciprocal(y))  -> Div(x, y)

1. Nothing else reads the Reciprocal. The quotient is rounded once, the product twice.
2. In this form onnxruntime recognises root-mean-square normalization.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass, maker_for, replace_node


class DivideByReciprocals(NodePass):
    """Replaces products with Reciprocals by quotients."""

    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a product, if one factor is a Reciprocal."""
        a, b = node.inputs
        for number, factor in ((a, b), (b, a)):
            made = maker_for(node, factor, "Reciprocal")
            if made is not None and made.graph is not None:
                replace_node(node, "Div", [number, made.inputs[0]])
                made.graph.remove(made, safe=True)
                return True
        return False

"""ONNX pass: writes a product with a Reciprocal as a quotient, which is one node instead of two.

    Mul(x, Reciprocal(y))  -> Div(x, y)

1. Nothing else reads the Reciprocal. The quotient is rounded once, the product twice.
2. In this form onnxruntime recognises root-mean-square normalization.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass, replace_node
from ..pass_order import Run
from ..pattern_matcher import op, value

_PRODUCT = value("dividend") * op("Reciprocal", value("divisor")).label("reciprocal")


class DivideByReciprocals(NodePass):
    """Replaces products with Reciprocals by quotients."""

    runs = (
        Run(
            "full",
            after={"FuseRMSNormalization": "A product with a Reciprocal is a form of the normalization."},
        ),
    )
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a product, if one factor is a Reciprocal."""
        match = _PRODUCT.find(node)
        if match is None:
            return False
        reciprocal = match.node("reciprocal")
        graph = reciprocal.graph
        if graph is None or graph is not node.graph:
            return False
        replace_node(node, "Div", [match["dividend"], match["divisor"]])
        graph.remove(reciprocal, safe=True)
        return True

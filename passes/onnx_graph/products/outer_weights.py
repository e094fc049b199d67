"""ONNX pass: dequantizes constants of sub-graphs in the main graph.

    If { MatMul(x, DequantizeLinear(w, s)) } -> DequantizeLinear(w, s), If { MatMul(x, ·) }

1. `w`, `s` and the zero point are initializers of the main graph.
2. onnxruntime 1.32 fuses a product with its dequantized weight, but fails to load a model whose weight lies
   outside of the sub-graph. An iteration of a Loop need not dequantize the weight again, either.
3. A result of the sub-graph stays, because it must be computed there.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import ConstantPass
from ..pass_order import Run


class DequantizeOutside(ConstantPass):
    """Moves each DequantizeLinear of constants out of its sub-graph."""

    runs = (Run("none", after={"DequantizeWeights": "It writes DequantizeLinear nodes."}),)
    op_types = ("DequantizeLinear",)

    def rewrite(self, node: ir.Node) -> bool:
        """Move a node to the beginning of the main graph."""
        main, graph = self.initializers.graph, node.graph
        operands = [value for value in node.inputs if value is not None]
        is_constant = all(value.is_initializer() and value.graph is main for value in operands)
        if graph is None or graph is main or not is_constant or node.outputs[0].is_graph_output():
            return False
        graph.remove(node)
        main.insert_before(main[0], node)
        return True

"""ONNX pass: lets Gemm read a weight in its stored layout instead of a transposed copy.

    Gemm(x, transposed copy of w, bias)  -> Gemm(x, w, bias, transB=1)

1. The copy was derived from `w` by exchanging its dimensions alone.
2. All readers of the copy are such Gemms, so that the file has `w` instead of the copy, under its own name.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import InitializerPass, NodesByOperator
from ..pass_order import Run


class ReadStoredWeights(InitializerPass):
    """Removes transposed copies of weights; the graph then has the contents of the checkpoint."""

    runs = (Run("basic", after={"WriteRowGemm": "All readers of a transposed copy must be Gemms."}),)

    keeps_nodes = True

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Replace the copies, and report whether there were any."""
        modified = False
        for copy in list(self.initializers.transposed):
            readers = [node for node, index in copy.uses() if index == 1]
            if not readers or len(readers) < len(copy.uses()) or copy.is_graph_output():
                continue
            if any(node.op_type != "Gemm" or node.domain for node in readers):
                continue
            weight = self.initializers.restore(copy)
            for node in readers:
                node.replace_input_with(1, weight)
                if node.attributes.get_int("transB", 0):
                    del node.attributes["transB"]
                else:
                    node.attributes["transB"] = ir.AttrInt64("transB", 1)
            modified = True
        return modified

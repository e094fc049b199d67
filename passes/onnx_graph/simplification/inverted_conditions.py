"""ONNX pass: removes a Not in front of Where by exchanging the operands.

    Where(Not(c), a, b)      becomes      Where(c, b, a)

1. Only conditions of Where read the result of the Not, so that it is removed.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass
from ..pass_order import Run


class ExchangeOperands(NodePass):
    """Removes Not nodes."""

    runs = (
        Run(
            "full",
            after={
                "FuseAttention": "A Where by a Not is a form of attention masks.",
                "RemoveNaNReplacements": "It recognises masks in this form.",
            },
        ),
    )
    op_types = ("Not",)

    def rewrite(self, node: ir.Node) -> bool:
        """Remove a Not, if all of its readers can read the operand instead."""
        condition, result = node.inputs[0], node.outputs[0]
        readers = [*result.uses()]
        if condition is None or not readers or result.is_graph_output():
            return False
        if any(reader.op_type != "Where" or reader.domain or index for reader, index in readers):
            return False
        for reader, _ in readers:
            _, selected, alternative = reader.inputs
            reader.replace_input_with(0, condition)
            reader.replace_input_with(1, alternative)
            reader.replace_input_with(2, selected)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return True

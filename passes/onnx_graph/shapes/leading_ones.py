"""ONNX pass: leaves out leading axes of size 1, which broadcasting adds anyway.

    Unsqueeze [length] -> [1, 1, length] -> Add [batch, length, length]
    [length] -> Add [batch, length, length]

1. The node only adds axes of size 1 in front of all axes that have another size.
2. Every reader is an elementwise operator of the same graph with another operand of at least the same rank,
   so that the rank of its result stays.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import NodePass, replace_by_value
from ..pass_order import Run
from .late_broadcasts import BROADCASTING, MAXIMUM_READERS


class OmitLeadingOnes(NodePass):
    """Lets elementwise operators read a value without its leading axes of size 1."""

    runs = (
        Run(
            "basic",
            after={
                "FuseRotaryEmbedding": "The tables of the formula have these axes.",
                "FuseAttention": "Causal masks are recognised by the axes of their positions.",
                "RemoveNarrowValues": "Causal masks are recognised by the axes of their positions.",
                "FlattenRows": "It compares the rows of operands of one rank.",
            },
        ),
    )
    op_types = ("Unsqueeze", "Reshape")

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by its operand, if readers broadcast that to the same results."""
        source, result = node.inputs[0], node.outputs[0]
        if source is None or source.shape is None or result.shape is None or result.is_graph_output():
            return False
        added = len(result.shape) - len(source.shape)
        inner, outer = _without_leading_ones(source.shape), _without_leading_ones(result.shape)
        if added < 1 or len(inner) != len(outer) or not all(map(same_size, inner, outer)):
            return False
        readers = [reader for reader, _ in result.uses()]
        if not 0 < len(readers) <= MAXIMUM_READERS:
            return False
        for reader in readers:
            if reader.graph is not node.graph or reader.domain or reader.op_type not in BROADCASTING:
                return False
            shapes = [value.shape for value in reader.inputs if value is not None and value is not result]
            if not any(shape is not None and len(shape) >= len(result.shape) for shape in shapes):
                return False
        replace_by_value(node, source)
        return True


def _without_leading_ones(shape: ir.Shape) -> list[int | ir.SymbolicDim]:
    sizes = list(shape)
    while sizes and sizes[0] == 1:
        del sizes[0]
    return sizes

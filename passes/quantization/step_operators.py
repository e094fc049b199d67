"""Finds the arithmetic before operators that make whole numbers of floating-point numbers.

It must not be quantized: if 15.99 stands for 16, a Cast to an integer gives 15, and the wrong row of a table.
"""

from __future__ import annotations

import onnx_ir as ir

_STEPS = frozenset(["Ceil", "Floor", "Round"])
_ARITHMETIC = frozenset(
    (
        "Abs Add Clip Concat Div Expand Flatten Gather Identity Max Min Mul Neg Pad Relu Reshape Resize "
        "Slice Split Squeeze Sub Sum Tile Transpose Unsqueeze Where"
    ).split()
)
"""Operators that models apply to positions and numbers of tokens; not layers with weights."""


def arithmetic_before_steps(graph: ir.Graph) -> frozenset[ir.Node]:
    """The nodes of arithmetic whose results are read only by casts to integers, roundings, and such nodes."""
    nodes: set[ir.Node] = set()
    steps: set[ir.Node] = set()
    for node in reversed(graph):
        dtype = node.outputs[0].dtype if node.outputs else None
        is_cast = node.op_type == "Cast" and dtype is not None and dtype.is_integer()
        if is_cast or node.op_type in _STEPS:
            steps.add(node)
        elif node.op_type in _ARITHMETIC:
            readers = [use.node for value in node.outputs for use in value.uses()]
            is_output = any(value.is_graph_output() for value in node.outputs)
            if readers and not is_output and all(reader in steps or reader in nodes for reader in readers):
                nodes.add(node)
    return frozenset(nodes)

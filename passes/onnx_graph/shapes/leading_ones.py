"""ONNX passes that remove nodes which add or remove leading axes of size 1: broadcasting does it anyway.

    Unsqueeze [length] -> [1, 1, length] -> Add [batch, length, length]
    [length] -> Add [batch, length, length]

1. The node only adds axes of size 1 in front of all axes that have another size.
2. Every reader is an elementwise operator of the same graph with another operand of at least the same rank,
   so that the rank of its result stays.

    [1, 1, length, 4] -> Gather(index 0) -> Concat(axis=2) with itself -> Mul [batch, heads, length, 8]
    [1, 1, length, 4] -> Concat(axis=3) with itself -> Mul [batch, heads, length, 8]

3. The Gather or Squeeze only removes the first axis, which has size 1. For its readers rule 2 holds, with the
   rank before the node. A Concat of copies of the result may stand between.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import ConstantPass, NodePass, replace_by_value
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
        if not _are_broadcast(node, result, len(result.shape)):
            return False
        replace_by_value(node, source)
        return True


class KeepLeadingOnes(ConstantPass):
    """Lets elementwise operators read a value with its first axis of size 1."""

    runs = (Run("full", after={"FuseRotaryEmbedding": "The tables of the formula have three axes."}),)
    op_types = ("Gather", "Squeeze")

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by its operand, if readers broadcast that to the same results."""
        source, result = node.inputs[0], node.outputs[0]
        if source is None or not source.shape or source.shape[0] != 1 or result.is_graph_output():
            return False
        rank = len(source.shape)
        if node.op_type == "Squeeze":
            axes = self.initializers.integers(node, "axes", 1)
            is_first = axes is not None and [axis % rank for axis in axes] == [0]
        else:
            index = self.initializers.small_array(node.inputs[1])
            is_first = (
                index is not None and index.shape == () and not node.attributes.get_int("axis", 0) % rank
            )
        if not is_first or rank < 2:
            return False
        joins = {
            reader: None
            for reader, _ in result.uses()
            if reader.op_type == "Concat" and all(operand is result for operand in reader.inputs)
        }
        joined = [join.outputs[0] for join in joins]
        if any(value.is_graph_output() or value.shape is None for value in joined):
            return False
        if not all(_are_broadcast(node, value, rank, joins) for value in (result, *joined)):
            return False
        for join in joins:
            axis, shape = join.attributes.get_int("axis", 0), join.outputs[0].shape
            assert shape is not None
            join.attributes.add(ir.AttrInt64("axis", axis if axis < 0 else axis + 1))
            join.outputs[0].shape = ir.Shape([1, *shape])
        replace_by_value(node, source)
        return True


def _are_broadcast(node: ir.Node, value: ir.Value, rank: int, allowed: Collection[ir.Node] = ()) -> bool:
    """Whether only allowed nodes and elementwise operators with an operand of a rank or more read a value."""
    readers = [reader for reader, _ in value.uses()]
    if not 0 < len(readers) <= MAXIMUM_READERS:
        return False
    for reader in readers:
        if reader in allowed:
            continue
        if reader.graph is not node.graph or reader.domain or reader.op_type not in BROADCASTING:
            return False
        shapes = [operand.shape for operand in reader.inputs if operand is not None and operand is not value]
        if not any(shape is not None and len(shape) >= rank for shape in shapes):
            return False
    return True


def _without_leading_ones(shape: ir.Shape) -> list[int | ir.SymbolicDim]:
    sizes = list(shape)
    while sizes and sizes[0] == 1:
        del sizes[0]
    return sizes

"""ONNX pass: keeps onnxruntime from merging a Transpose into the product of a matrix and a vector.

onnxruntime's MatmulTransposeFusion does so up to at least 1.31, and then multiplies by the matrix as it was.
The vector times the matrix that is transposed once more has the same result.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.origins import inherit
from ..node_pass import NodePass, remove_unread
from ..pass_order import Run
from ..pattern_matcher import op, value
from ..transposes.permutations import permutation_of

_TRANSPOSED = op("Transpose", value("data")).label("transposed")
_PRODUCT = op("MatMul", _TRANSPOSED | op("Cast", _TRANSPOSED), value("vector"))


class PutVectorsFirst(NodePass):
    """Puts the vector before the matrix in each MatMul of a transposed matrix and a vector."""

    runs = (Run("none", after={"RemoveUnusedAtEnd": "Nodes that are removed need no change."}),)
    op_types = ("MatMul",)

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite a MatMul, if its matrix is transposed, also if it is cast afterwards."""
        matrix, vector = node.inputs
        if matrix is None or vector is None or vector.shape is None or len(vector.shape) != 1:
            return False
        match = _PRODUCT.find(node, is_closed=False)
        order = None if match is None else permutation_of(match.node("transposed"))
        # Only a Transpose that moves the last axis can be merged into the product.
        if match is None or order is None or len(order) < 2 or order[-1] == len(order) - 1:
            return False
        if matrix is match["transposed"]:
            swapped = _insert_transpose(node, match["data"], [*order[:-2], order[-1], order[-2]])
        else:
            rank = len(order)
            swapped = _insert_transpose(node, matrix, [*range(rank - 2), rank - 1, rank - 2])
        node.replace_input_with(0, vector)
        node.replace_input_with(1, swapped)
        remove_unread(match.node("transposed"))
        return True


def _insert_transpose(reader: ir.Node, value: ir.Value | None, order: list[int]) -> ir.Value | None:
    """A value with its axes in another order, before the node that will read it."""
    if value is None or order == list(range(len(order))):
        return value
    transpose = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", order)], num_outputs=1)
    result = transpose.outputs[0]
    result.name, result.type = f"{reader.outputs[0].name}_matrix", value.type
    result.shape = None if value.shape is None else ir.Shape([value.shape[axis] for axis in order])
    inherit(transpose, reader)
    assert reader.graph is not None
    reader.graph.insert_before(reader, transpose)
    return result

"""ONNX pass: divides a tensor into rows before it is split, instead of each part.

    Split(x, [32, 16]) -> Reshape [0, 0, 4, 8] of the first part, Reshape [0, 0, 2, 8] of the second one
    Reshape(x, [0, 0, 6, 8]) -> Split [4, 2]

1. The sizes of the parts are constants along the last axis. Only a Reshape reads each part, and divides the
   last axis into two, of which the second has the same size in all of them.
2. The graph returns no part.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import ConstantPass, insert_node, new_split, remove_unread
from ..pass_order import Run


class ReshapeOnce(ConstantPass):
    """Replaces the Reshapes of all parts of a tensor by one."""

    runs = (
        Run(
            "full",
            after={
                "RejoinParts": "It looks for Reshapes of parts.",
                "SeparateColumns": "It looks for Reshapes of parts.",
                "LiftRows": "It may remove the Reshapes.",
            },
        ),
    )
    op_types = ("Split",)

    def rewrite(self, node: ir.Node) -> bool:
        """Reshape the operand of a Split."""
        source, sizes = node.inputs[0], self.initializers.integers(node, "split", 1)
        if source is None or source.shape is None or sizes is None or len(sizes) < 2 or node.graph is None:
            return False
        rank = len(source.shape)
        if node.attributes.get_int("axis", 0) % rank != rank - 1:
            return False
        heads, reshapes, width, target = [], [], None, None
        for part in node.outputs:
            reader = next((reader for reader, _ in part.uses()), None)
            if part.is_graph_output() or reader is None or len(part.uses()) > 1:
                return False
            result = reader.outputs[0]
            if reader.op_type != "Reshape" or reader.graph is not node.graph or result.is_graph_output():
                return False
            shape, target = result.shape, self.initializers.integers(reader, "shape", 1)
            if shape is None or len(shape) != rank + 1 or target is None or len(target) != rank + 1:
                return False
            count, size = shape[-2:]
            if not isinstance(count, int) or not isinstance(size, int) or width not in (None, size):
                return False
            if not all(map(same_size, shape[:-2], source.shape[:-1])):
                return False
            heads.append(count)
            reshapes.append(reader)
            width = size
        if target is None or width is None:
            return False
        joined = self.initializers.make(np.array([*target[:-2], sum(heads), width], np.int64), "rows_shape")
        shape = ir.Shape([*source.shape[:-1], sum(heads), width])
        rows = insert_node(node, self.initializers, "Reshape", [source, joined], shape)
        split = new_split(node, self.initializers, rows, rank - 1, heads, "rows", self.opset)
        node.graph.insert_before(node, split)
        for reshape, part in zip(reshapes, split.outputs, strict=True):
            reshape.outputs[0].replace_all_uses_with(part)
            remove_unread(reshape)
        return True

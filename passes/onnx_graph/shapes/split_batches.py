"""ONNX pass: splits the first dimension before a Transpose of matrices instead of after it.

    Reshape [b * n, s, d] -> Transpose [0, 2, 1] -> Reshape [b, n, d, s]
    Reshape [b, n, s, d] -> Transpose [0, 1, 3, 2]

torch.onnx writes the first form for the keys of attention. In the second, the Reshape often has no effect or
merges with another, and the Transpose merges with the one before it.

1. The two Reshapes have no other readers, and all sizes of the result but one are known.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import ConstantPass, removable_producer, replace_node
from ..pass_order import Run
from .shape_chains import reshape_target


class SplitBatchesEarly(ConstantPass):
    """Lets a Transpose of the last two dimensions read a tensor of the shape that its result gets."""

    runs = (
        Run("basic", after={"FoldConstants": "Targets of Reshapes must be constants for sizes to be known."}),
    )
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node) -> bool:
        """Exchange a Reshape and the Transpose before it."""
        transpose = removable_producer(node, node.inputs[0], "Transpose")
        first = (
            removable_producer(transpose, transpose.inputs[0], "Reshape") if transpose is not None else None
        )
        after = node.outputs[0].shape
        if transpose is None or first is None or after is None or len(after) < 4:
            return False
        perm, data = transpose.attributes.get("perm"), first.inputs[0]
        between = transpose.outputs[0].shape
        if data is None or perm is None or list(perm.as_ints()) != [0, 2, 1] or between is None:
            return False
        # The last Reshape must split the first dimension alone.
        if not all(same_size(a, b) for a, b in zip(between[1:], after[-2:], strict=True)):
            return False
        before = ir.Shape([*after[:-2], after[-1], after[-2]])
        target = reshape_target(before)
        if target is None:
            return False
        rank = len(after)
        order = [*range(rank - 2), rank - 1, rank - 2]
        replace_node(
            first, "Reshape", [data, self.initializers.make(np.array(target, dtype=np.int64), "split_shape")]
        )
        split = transpose.inputs[0]
        assert split is not None
        split.name, split.shape = self.initializers.unique(f"{split.name}_split"), before
        replace_node(node, "Transpose", [split], [ir.AttrInt64s("perm", order)])
        assert transpose.graph is not None
        transpose.graph.remove(transpose, safe=True)
        return True

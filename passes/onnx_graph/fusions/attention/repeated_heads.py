"""ONNX pass: writes the repetition of heads of keys and values as one Gather.

    Unsqueeze(key, 2) -> Expand by n -> Reshape      becomes      Gather(key, [0, 0, 1, 1, …], axis=1)

1. The number of heads is known. All other sizes are known, or are the same symbols before and after.
2. In front of Attention, `GroupHeads` removes the repetition instead.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...node_pass import ConstantPass, remove_unread, replace_node
from ...pass_order import Run
from .grouped_heads import HEADS, repetition_source


class GatherHeads(ConstantPass):
    """Replaces three nodes that repeat heads by one."""

    runs = (Run("full", after={"GroupHeads": "Attention repeats heads itself."}),)
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a Reshape that ends a repetition of heads."""
        result = node.outputs[0]
        source = repetition_source(node)
        if source is None or source.shape is None or result.shape is None:
            return False
        heads, repeated_heads = source.shape[HEADS], result.shape[HEADS]
        assert isinstance(heads, int)
        assert isinstance(repeated_heads, int)
        indices = np.repeat(np.arange(heads, dtype=np.int64), repeated_heads // heads)
        replaced = node.inputs[0]
        positions = self.initializers.make(indices, "repeated_heads")
        replace_node(node, "Gather", [source, positions], [ir.AttrInt64("axis", HEADS)])
        if replaced is not None and (producer := replaced.producer()) is not None:
            remove_unread(producer)
        return True

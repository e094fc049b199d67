"""ONNX pass: gives nodes of some operators initializers of their own.

1. OpenCV 4 adds a layer of the constant's name for each GatherElements that reads it, and fails at the
   second. Its Squeeze refuses axes that are also an operand of arithmetic or the positions of a Gather.
2. The copies share the contents in memory.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ..constants.initializers import Initializers, rename_tensor
from ..node_pass import ConstantPass


class UnshareConstants(ConstantPass):
    """Copies each initializer that a node of these operators shares with other readers."""

    def __init__(self, op_types: Collection[str], initializers: Initializers):
        super().__init__(initializers)
        self.op_types = op_types

    def rewrite(self, node: ir.Node) -> bool:
        """Give a node its own copies."""
        modified = False
        for index, value in enumerate(node.inputs):
            if value is None or not self.initializers.is_constant(value) or len(value.uses()) < 2:
                continue
            tensor, name = value.const_value, self.initializers.unique(f"{value.name}_copy")
            assert tensor is not None
            copy = ir.Value(
                name=name, type=value.type, shape=value.shape, const_value=rename_tensor(tensor, name)
            )
            self.initializers.graph.initializers.add(copy)
            node.replace_input_with(index, copy)
            modified = True
        return modified

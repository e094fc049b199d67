"""ONNX pass: gives inputs of rank 1 their rank, for targets that read them as columns.

1. OpenCV 4 makes an input of n elements a matrix of n rows and one column, so that the results of the nodes
   behind it have one dimension too many.
2. A Reshape to the n elements, which OpenCV reads as ONNX does, is the only reader of the input.
3. The size is static.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ..node_pass import InitializerPass, NodesByOperator


class ReshapeVectors(InitializerPass):
    """Puts a Reshape behind each input of rank 1."""

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Reshape the inputs that nodes read."""
        modified = False
        for value in model.graph.inputs:
            readers = list(value.uses())
            size = value.shape[0] if value.shape is not None and len(value.shape) == 1 else None
            if value.const_value is not None or not isinstance(size, int) or not readers:
                continue
            if all(node.op_type == "Reshape" for node, _ in readers):
                continue
            first = readers[0][0]
            sizes = self.initializers.make(np.array([size], np.int64), f"{value.name}_size")
            reshape = ir.node("Reshape", [value, sizes])
            vector = reshape.outputs[0]
            vector.name = self.initializers.unique(f"{value.name}_vector")
            vector.type, vector.shape = value.type, value.shape
            inherit(first, reshape)
            for node, index in readers:
                node.replace_input_with(index, vector)
            model.graph.insert_before(model.graph[0], reshape)
            modified = True
        return modified

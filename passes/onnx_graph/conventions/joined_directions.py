"""ONNX pass: joins the directions of a recurrent layer by Transpose and Reshape, a pattern that pnnx needs.

1. With a batch of 1 other passes write the Transpose between directions and batch as a Reshape, or merge it
   into one that follows. pnnx then does not recognise the layer, and writes one that ncnn refuses.
2. Sizes are known; a unidirectional layer stays as it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass
from ..pass_order import Run

_RECURRENT = ("GRU", "LSTM", "RNN")


class JoinDirections(ConstantPass):
    """Inserts a Transpose before each Reshape that reads the sequence of a bidirectional layer."""

    runs = (Run("basic", after={"FlattenRows": "It writes Reshapes, which may read a recurrent layer."}),)
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node) -> bool:
        """Insert a Transpose before the Reshape of a layer's sequence."""
        if not self._reads_directions(node):
            return False
        self._join(node)
        return True

    def _reads_directions(self, node: ir.Node) -> bool:
        """Whether a Reshape reads the sequence [length, 2, 1, size] of a layer, and gives known sizes."""
        source, result = node.inputs[0], node.outputs[0]
        layer = source.producer() if source is not None else None
        if source is None or layer is None or layer.op_type not in _RECURRENT or layer.domain:
            return False
        if source is not layer.outputs[0] or layer.graph is not node.graph:
            return False
        shape = source.shape
        if shape is None or not shape.is_static() or result.shape is None or not result.shape.is_static():
            return False
        return len(shape) == 4 and shape[1] == 2 and shape[2] == 1

    def _join(self, node: ir.Node) -> None:
        source, result, graph = node.inputs[0], node.outputs[0], node.graph
        assert source is not None
        assert source.shape is not None
        assert result.shape is not None
        assert graph is not None
        length, directions, batch, size = source.shape.numpy()
        order = ir.AttrInt64s("perm", [0, 2, 1, 3])
        transpose = ir.Node("", "Transpose", [source], [order], name=self.initializers.unique("directions"))
        swapped = transpose.outputs[0]
        swapped.name = self.initializers.unique(f"{source.name}_swapped")
        swapped.type, swapped.shape = source.type, ir.Shape([length, batch, directions, size])
        new = [transpose]
        joined = (length, batch, directions * size)
        # The old Reshape may go on to another shape, such as a merged one.
        if result.shape.numpy() != joined:
            sizes = self.initializers.make(np.array(joined, np.int64), "joined_shape")
            reshape = ir.Node(
                "", "Reshape", [swapped, sizes], name=self.initializers.unique("join_directions")
            )
            swapped = reshape.outputs[0]
            swapped.name = self.initializers.unique(f"{source.name}_joined")
            swapped.type, swapped.shape = source.type, ir.Shape(joined)
            new.append(reshape)
        graph.insert_before(node, new)
        node.replace_input_with(0, swapped)

"""ONNX pass: joins the directions of a recurrent layer by Transpose and Reshape, a pattern that pnnx needs.

1. With a batch of 1 other passes write the Transpose between directions and batch as a Reshape, or merge it
   into one that follows. pnnx then does not recognise the layer, and writes one that ncnn refuses.
2. A Reshape behind that Transpose may be merged with others; one to [length, 1, 2 * size] then precedes it.
3. Sizes are known; a unidirectional layer stays as it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.inference.constant_integers import argument
from ..node_pass import ConstantPass, producer_of
from ..pass_order import Run
from ..transposes.permutations import permutation_of

_RECURRENT = ("GRU", "LSTM", "RNN")
_ORDER = (0, 2, 1, 3)


class JoinDirections(ConstantPass):
    """Writes Transpose and Reshape behind each bidirectional layer whose sequence a Reshape reads."""

    runs = (Run("basic", after={"FlattenRows": "It writes Reshapes, which may read a recurrent layer."}),)
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node) -> bool:
        """Insert what is missing of Transpose and Reshape between a layer and the Reshape of its sequence."""
        data = node.inputs[0]
        transpose = producer_of(data, "Transpose")
        if transpose is not None and permutation_of(transpose) == _ORDER:
            data = transpose.inputs[0]
        else:
            transpose = None
        sizes = _sequence_sizes(data, node)
        if data is None or sizes is None:
            return False
        length, directions, batch, size = sizes
        joined = (length, batch, directions * size)
        result = node.outputs[0].shape
        assert result is not None
        is_joined = result.numpy() == joined
        if transpose is not None and is_joined:
            return False
        assert node.graph is not None
        new = []
        if transpose is None:
            transpose = ir.Node(
                "",
                "Transpose",
                [data],
                [ir.AttrInt64s("perm", _ORDER)],
                name=self.initializers.unique("directions"),
            )
            swapped = transpose.outputs[0]
            swapped.name = self.initializers.unique(f"{data.name}_swapped")
            swapped.type, swapped.shape = data.type, ir.Shape([length, batch, directions, size])
            new.append(transpose)
        source = transpose.outputs[0]
        # The old Reshape may go on to another shape, such as a merged one.
        if not is_joined:
            shape = self.initializers.make(np.array(joined, np.int64), "joined_shape")
            reshape = ir.Node(
                "", "Reshape", [source, shape], name=self.initializers.unique("join_directions")
            )
            source = reshape.outputs[0]
            source.name = self.initializers.unique(f"{data.name}_joined")
            source.type, source.shape = data.type, ir.Shape(joined)
            new.append(reshape)
        node.graph.insert_before(node, new)
        node.replace_input_with(0, source)
        return True


def _sequence_sizes(data: ir.Value | None, node: ir.Node) -> tuple[int, ...] | None:
    """The sizes [length, 2, 1, size] of a layer's sequence, if a Reshape gives them another known shape."""
    layer = producer_of(data, *_RECURRENT)
    if data is None or layer is None or data is not layer.outputs[0] or layer.graph is not node.graph:
        return None
    shape, result = data.shape, node.outputs[0].shape
    if shape is None or not shape.is_static() or result is None or not result.is_static():
        return None
    # A size of 0 is copied from the operand, whose sizes change.
    if 0 in (argument(node, "shape", 1) or ()):
        return None
    return shape.numpy() if len(shape) == 4 and shape[1] == 2 and shape[2] == 1 else None

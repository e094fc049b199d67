"""ONNX pass: reads each dynamic size from the first tensor that has it, so that equal reads can be merged.

    Gather(Shape(scores), 1)  ->  Gather(Shape(input_ids), 1)    where both dimensions are named "length"

1. A Gather of one size of a Shape reads the size of that name that an earlier Gather reads.
2. A Shape of a tensor whose sizes all have names reads the first tensor with the same sizes.
3. The names are those of inputs, or expressions of them such as `2*length`: other names may stand for several
   sizes. Nodes of sub-graphs stay.
4. Conversions of files omit the pass: a file may give one name to sizes that differ.
"""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from ..node_pass import ConstantPass, producer_of
from ..pass_order import Run

_NAME = re.compile(r"[^\W\d]\w*")


class ShareSizes(ConstantPass):
    """Reads each dynamic size from one tensor."""

    runs = (
        Run(
            "basic", after={"RemoveUnused": "A size that nothing reads would be the first one with its name."}
        ),
    )
    op_types = ("Gather", "Shape")

    def begin(self, model: ir.Model) -> bool:
        """Forget the sizes of other models."""
        self._graph = model.graph
        shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
        self._names = {size.value for shape in shapes for size in shape if isinstance(size, ir.SymbolicDim)}
        self._sizes: dict[str, tuple[ir.Value, int]] = {}
        self._positions: dict[tuple[int, tuple[int, ...]], ir.Value] = {}
        self._tensors: dict[tuple[int | str | None, ...], ir.Value] = {}
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Let a node read the first tensor with the size, or with the shape."""
        source = node.inputs[0]
        if node.graph is not self._graph or source is None:
            return False
        if node.op_type == "Gather":
            return self._share_size(node, source)
        shape = source.shape
        # From opset 15, attributes select a part of the shape.
        if (
            shape is None
            or node.attributes
            or shape.is_static()
            or not all(self._is_of_inputs(size) for size in shape)
        ):
            return False
        sizes = tuple(size.value if isinstance(size, ir.SymbolicDim) else size for size in shape)
        if self._tensors.setdefault(sizes, source) is source:
            return False
        node.replace_input_with(0, self._tensors[sizes])
        return True

    def _is_of_inputs(self, size: int | ir.SymbolicDim) -> bool:
        """Whether a size is a number, or an expression of sizes of inputs."""
        return isinstance(size, int) or (
            size.value is not None and self._names.issuperset(_NAME.findall(size.value))
        )

    def _share_size(self, node: ir.Node, source: ir.Value) -> bool:
        producer, position = producer_of(source, "Shape"), node.inputs[1]
        indices = self.initializers.small_array(position)
        tensor = None if producer is None or producer.attributes else producer.inputs[0]
        if position is None or indices is None or indices.size != 1 or tensor is None or tensor.shape is None:
            return False
        axis = int(indices.item())
        size = tensor.shape[axis] if 0 <= axis < len(tensor.shape) else None
        if not isinstance(size, ir.SymbolicDim) or size.value is None or not self._is_of_inputs(size):
            return False
        first_source, first_axis = self._sizes.setdefault(size.value, (source, axis))
        # Equal nodes read the same constants.
        key = first_axis, indices.shape
        if key not in self._positions:
            array = np.full(indices.shape, first_axis, np.int64)
            self._positions[key] = position if axis == first_axis else self.initializers.make(array, "axis")
        if first_source is source and self._positions[key] is position:
            return False
        node.replace_input_with(0, first_source)
        node.replace_input_with(1, self._positions[key])
        return True

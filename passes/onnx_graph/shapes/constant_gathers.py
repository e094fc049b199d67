"""ONNX pass: writes GatherND at constant positions as Gather or Reshape, which more targets support.

torch.onnx writes the broadcasting of a mask as a GatherND of bools, which OpenCV 5 does not read.

1. Positions of one dimension become those of a Gather.
2. Positions that are all of the indexed elements, in their order, become a Reshape.
3. For bools, other positions become those of a Gather along the merged dimensions.
4. The sizes of the indexed dimensions are known, and at most one of the others is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration.origins import inherit
from ..node_pass import ConstantPass, replace_node
from ..pass_order import Run
from .shape_chains import reshape_target

_MAXIMUM_POSITIONS = 2**20

Size = int | ir.SymbolicDim


class SimplifyGathers(ConstantPass):
    """Replaces GatherND nodes."""

    runs = (Run("basic", after={"FoldSmallResults": "The positions must be constants."}),)
    op_types = ("GatherND",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a GatherND without batch dimensions, if its positions are constant."""
        data, positions = node.inputs[0], self._positions(node)
        if data is None or positions is None or data.shape is None or not positions.shape[-1]:
            return False
        depth = positions.shape[-1]
        sizes, inner_sizes = data.shape[:depth], data.shape[depth:]
        indexed_sizes = [size for size in sizes if isinstance(size, int)]
        if len(indexed_sizes) < depth or 0 in indexed_sizes:
            return False
        # Negative positions count from the end.
        coordinates = positions + np.where(positions < 0, np.array(indexed_sizes), 0)
        if (coordinates < 0).any() or (coordinates >= np.array(indexed_sizes)).any():
            return False
        rows = np.ravel_multi_index(tuple(np.moveaxis(coordinates, -1, 0)), indexed_sizes)
        # Rule 2: all elements in their order.
        if rows.size == math.prod(indexed_sizes) and np.array_equal(rows.reshape(-1), np.arange(rows.size)):
            return self._reshape(node, data, [*rows.shape, *inner_sizes])
        if depth == 1:
            self._gather(node, data, rows)
            return True
        return data.dtype == ir.DataType.BOOL and self._gather_rows(
            node, data, math.prod(indexed_sizes), inner_sizes, rows
        )

    def _positions(self, node: ir.Node) -> np.ndarray | None:
        batch, indices = node.attributes.get("batch_dims"), node.inputs[1]
        if (
            (batch is not None and batch.as_int())
            or indices is None
            or not self.initializers.is_constant(indices)
        ):
            return None
        tensor = indices.const_value
        if tensor is None or isinstance(tensor, ir.LazyTensor) or not 0 < tensor.size <= _MAXIMUM_POSITIONS:
            return None
        return np.asarray(tensor.numpy())

    def _reshape(self, node: ir.Node, data: ir.Value, sizes: Sequence[Size]) -> bool:
        target = reshape_target(ir.Shape(sizes))
        if target is None:
            return False
        shape = self.initializers.make(np.array(target, np.int64), "gathered_shape")
        replace_node(node, "Reshape", [data, shape])
        return True

    def _gather_rows(
        self, node: ir.Node, data: ir.Value, count: int, inner_sizes: Sequence[Size], rows: np.ndarray
    ) -> bool:
        merged_shape = ir.Shape([count, *inner_sizes])
        target = reshape_target(merged_shape)
        if target is None or node.graph is None:
            return False
        sizes = self.initializers.make(np.array(target, np.int64), "merged_shape")
        name = self.initializers.unique(f"{node.name or 'GatherND'}/Reshape")
        merged = ir.node("Reshape", [data, sizes], name=name)
        result = merged.outputs[0]
        result.name = self.initializers.unique(f"{name}_output_0")
        result.type, result.shape = data.type, merged_shape
        inherit(merged, node)
        node.graph.insert_before(node, merged)
        self._gather(node, result, rows)
        return True

    def _gather(self, node: ir.Node, data: ir.Value, rows: np.ndarray) -> None:
        positions = self.initializers.make(rows.astype(np.int64), "positions")
        replace_node(node, "Gather", [data, positions], [ir.AttrInt64("axis", 0)])

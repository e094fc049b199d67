"""ONNX pass: stores the columns of a linear layer in the order in which they are read.

    MatMul(x, w) -> Reshape [0, 0, 2, 48] -> Split [8, 8, 16, 16] -> Reshape [0, 0, 16] of the first part, ...
    MatMul(x, w') -> Split [16, 16, 32, 32]

1. The Reshape only divides the columns into groups, and the Split, along the last axis, divides each group.
   Only the Split reads the groups, and the graph returns no part.
2. If all readers of a part are Reshapes whose targets do not copy the sizes of the groups, they read the same
   elements of the new part. Another part becomes groups by a Reshape of its own. The result has fewer
   Reshapes.
3. Nothing else reads weight, bias and product. The new weight and bias are computed when they are written.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_shape, same_size
from ..node_pass import (
    ConstantPass,
    insert_node,
    new_split,
    removable_producer,
    remove_unread,
    replace_by_value,
)
from ..pass_order import Run
from .linear_layer import LinearLayer, find_layer


class SeparateColumns(ConstantPass):
    """Exchanges columns of weights, where parts of each group of columns are used."""

    runs = (
        Run(
            "full",
            after={
                "MergeShapesBehindScales": "One Reshape stands for all changes of the shape of a part.",
                "SplitSlices": "It writes Splits.",
            },
        ),
    )
    op_types = ("Split",)

    def rewrite(self, node: ir.Node) -> bool:
        """Split the columns of a layer before they become groups."""
        reshape = removable_producer(node, node.inputs[0], "Reshape")
        target = None if reshape is None else self.initializers.integers(reshape, "shape", 1)
        sizes = self.initializers.integers(node, "split", 1)
        if reshape is None or target is None or sizes is None:
            return False
        columns, groups = reshape.inputs[0], reshape.outputs[0].shape
        if (
            columns is None
            or columns.shape is None
            or groups is None
            or len(groups) != len(columns.shape) + 1
        ):
            return False
        count, axis = groups[-2], len(groups) - 1
        is_last = node.attributes.get_int("axis", 0) % len(groups) == axis
        if not isinstance(count, int) or not is_last or groups[-1] != sum(sizes):
            return False
        if not all(map(same_size, columns.shape[:-1], groups[:-2])):
            return False
        if any(output.is_graph_output() for output in node.outputs):
            return False
        shapes = [ir.Shape([*groups[:-2], count * size]) for size in sizes]
        is_flat = [self._reads_elements(output, axis - 1) for output in node.outputs]
        flattening = [
            [reader for reader, _ in output.uses() if same_shape(reader.outputs[0].shape, shape)]
            for output, shape, flat in zip(node.outputs, shapes, is_flat, strict=True)
            if flat
        ]
        # The Reshape into groups is removed, too.
        if 1 + sum(map(len, flattening)) <= is_flat.count(False):
            return False
        layer = find_layer(self.initializers, reshape, columns)
        if layer is None:
            return False
        self._exchange(layer, count, sizes)
        part_sizes = [count * size for size in sizes]
        split = new_split(
            node, self.initializers, columns, len(groups) - 2, part_sizes, "columns", self.opset
        )
        assert node.graph is not None
        node.graph.insert_before(node, split)
        for part, output, flat, size in zip(split.outputs, node.outputs, is_flat, sizes, strict=True):
            part.type, part.shape = columns.type, ir.Shape([*groups[:-2], count * size])
            if not flat:
                shape = self.initializers.make(np.array([*target[:-1], size], np.int64), "group_shape")
                groups_of_part = ir.Shape([*groups[:-1], size])
                part = insert_node(node, self.initializers, "Reshape", [part, shape], groups_of_part)
            output.replace_all_uses_with(part)
        for reader in (reader for readers in flattening for reader in readers):
            source = reader.inputs[0]
            assert source is not None
            replace_by_value(reader, source)
        remove_unread(node)
        return True

    def _reads_elements(self, part: ir.Value, copied: int) -> bool:
        """Whether only Reshapes read a part, which copy no sizes from an axis on."""
        for reader, position in part.uses():
            if reader.op_type != "Reshape" or reader.domain or position != 0:
                return False
            target = self.initializers.integers(reader, "shape", 1)
            if target is None or 0 in target[copied:]:
                return False
        return True

    def _exchange(self, layer: LinearLayer, count: int, sizes: list[int]) -> None:
        """Give a layer the columns of the first parts of all groups first, then those of the second ones."""
        columns = np.arange(layer.columns).reshape(count, sum(sizes))
        parts = np.split(columns, np.cumsum(sizes)[:-1], axis=1)
        order = np.concatenate([part.reshape(-1) for part in parts])

        def exchange(constant: ir.Value, axis: int) -> ir.Value:
            tensor = constant.const_value
            assert tensor is not None
            return self.initializers.derive(
                [constant],
                lambda array: np.take(array, order, axis=axis),
                tensor.dtype,
                tuple(tensor.shape.numpy()),
                suffix="reordered",
            )

        layer.replace(self.initializers, exchange)

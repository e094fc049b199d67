"""ONNX pass: does not separate what a Concat joins again.

    Split(x, [16, 16, 32]) -> Reshape [0, 0, 2, 8] of the first two parts -> Concat along the third axis
    Split(x, [32, 32]) -> Reshape [0, 0, 4, 8] of the first part

1. The parts are neighbours along the last axis, in their order, and another part remains. Only a Reshape
   reads each part, and only the Concat reads its result; or only the Concat reads each part, and joins them
   along the same axis.
2. Each Reshape divides the last axis into two, of which the second has the same known size in all of them.
   The Concat joins the first ones.
3. The sizes of the parts are constants, and the graph returns no part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration.size_algebra.dimensions import same_size
from ..node_pass import (
    ConstantPass,
    insert_node,
    new_split,
    producer_of,
    removable_producer,
    remove_unread,
    replace_by_value,
)
from ..pass_order import Run


class RejoinParts(ConstantPass):
    """Joins parts of a Split before they are reshaped."""

    runs = (
        Run(
            "full",
            after={
                "SplitSlices": "It writes Splits.",
                "SeparateColumns": "Its parts lie beside each other as a whole.",
                "JoinHeads": "It joins parts of layers that are one product.",
                "MergeShapesBehindScales": "One Reshape stands for all changes of the shape of a part.",
            },
        ),
    )
    op_types = ("Concat",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a Concat of reshaped neighbours by the Reshape of one larger part."""
        reshapes = [removable_producer(node, operand, "Reshape") for operand in node.inputs]
        readers = [reshape for reshape in reshapes if reshape is not None]
        parts = [reader.inputs[0] for reader in readers] or [*node.inputs]
        split = (
            producer_of(parts[0], "Split") if len(readers) in (0, len(reshapes)) and len(parts) > 1 else None
        )
        sizes = None if split is None else self.initializers.integers(split, "split", 1)
        target = self._joined_target(node, readers) if readers else None
        if split is None or sizes is None or (readers and target is None) or len(parts) == len(sizes):
            return False
        if any(
            removable_producer(reader, part) is not split
            for reader, part in zip(readers or [node] * len(parts), parts, strict=True)
        ):
            return False
        result, axis = node.outputs[0], split.attributes.get_int("axis", 0)
        if result.shape is None:
            return False
        rank = len(result.shape) - bool(readers)
        if not readers and node.attributes.get_int("axis", 0) % rank != rank - 1:
            return False
        if axis % rank != rank - 1 or any(output.is_graph_output() for output in split.outputs):
            return False
        first = next(index for index, output in enumerate(split.outputs) if output is parts[0])
        if [*split.outputs[first : first + len(parts)]] != parts:
            return False
        joined_sizes = sizes[first : first + len(parts)]
        joined = self._join(split, [*sizes[:first], sum(joined_sizes), *sizes[first + len(parts) :]], first)
        if target is not None:
            shape = self.initializers.make(np.array(target, np.int64), "joined_shape")
            joined = insert_node(node, self.initializers, "Reshape", [joined, shape], result.shape)
        replace_by_value(node, joined)
        for reader in readers:
            remove_unread(reader)
        return True

    def _joined_target(self, node: ir.Node, reshapes: Sequence[ir.Node]) -> list[int] | None:
        """The target of a Reshape of all parts together; None if these do not only divide the last axis."""
        heads, width = 0, None
        for reshape in reshapes:
            source, result = reshape.inputs[0], reshape.outputs[0]
            before, after = None if source is None else source.shape, result.shape
            if before is None or after is None or not len(after) == len(before) + 1 >= 2:
                return None
            count, size = after[-2:]
            is_split_last = all(map(same_size, before[:-1], after[:-2]))
            if not isinstance(count, int) or not isinstance(size, int) or not is_split_last:
                return None
            if width not in (None, size) or node.attributes.get_int("axis", 0) % len(after) != len(after) - 2:
                return None
            heads, width = heads + count, size
        target = self.initializers.integers(reshapes[0], "shape", 1) if reshapes else None
        return None if target is None or width is None else [*target[:-2], heads, width]

    def _join(self, split: ir.Node, sizes: list[int], position: int) -> ir.Value:
        """The part at a position of a Split with new sizes, which gives the readers their other parts."""
        operand = split.inputs[0]
        assert operand is not None
        axis = split.attributes.get_int("axis", 0)
        assert split.graph is not None
        joined = new_split(split, self.initializers, operand, axis, sizes, "joined", self.opset)
        split.graph.insert_before(split, joined)
        behind = len(split.outputs) - len(sizes) + 1
        for index, result in enumerate(joined.outputs):
            old = split.outputs[index if index <= position else index + behind - 1]
            result.type = old.type
            if index == position:
                result.shape = None if old.shape is None else ir.Shape([*old.shape[:-1], sizes[position]])
            else:
                result.shape = old.shape
                old.replace_all_uses_with(result, replace_graph_outputs=True)
        return joined.outputs[position]

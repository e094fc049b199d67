"""ONNX pass: merges consecutive operators that only change the shape, or the element type.

1. Reshape, Squeeze, Unsqueeze and Flatten in a row become one Reshape, if at most one size of the result is
   unknown.
2. A Cast of a Cast becomes one, if the first type holds every value of the operand's.
3. A Reshape to a computed shape stays if it computes an output. Before opset 11, branches of an If end in
   such a Reshape, because onnxruntime takes the shape of one branch for that of both.
4. An intermediate value that has other readers, or is an output, stays for those.
5. A Reshape to the sum of a Shape and something else stays: it checks sizes, see `sym::require`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import dtypes
from ....registration.inference.constant_integers import argument
from ..node_pass import ConstantPass, producer_of, removable_producer, replace_node
from ..pass_order import Run

_SHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


class MergeShapeChains(ConstantPass):
    """Merges consecutive shape changes and casts."""

    runs = (
        Run(
            "basic",
            after={
                "PushTransposes": "Transposes that cancel leave shape changes in a row.",
                "RemoveUniformValues": "Tensors of one number need no shape changes.",
            },
        ),
        Run(
            "full",
            after={"FoldLinearScales": "Removing a scale may leave two shape changes in a row."},
            name="MergeShapesBehindScales",
        ),
    )
    op_types = (*_SHAPES, "Cast")

    def rewrite(self, node: ir.Node) -> bool:
        """Merge a node with the one before it."""
        return _merge_casts(node) if node.op_type == "Cast" else self._merge_shapes(node)

    def _merge_shapes(self, node: ir.Node) -> bool:
        inner = _inner_shape_change(node)
        if inner is None or inner.inputs[0] is None or _is_check(node) or _is_check(inner):
            return False
        target = reshape_target(node.outputs[0].shape)
        if node.op_type == "Reshape":
            shape_tensor = (
                node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
            )
            written_target = None if shape_tensor is None else shape_tensor.numpy().tolist()
            # A target depends on the shape of its input by the sizes that it copies.
            if written_target is not None and _copies_same_sizes(written_target, inner):
                node.replace_input_with(0, inner.inputs[0])
                return True
            if written_target is None and node.outputs[0].is_graph_output():
                return False
        if target is None:
            return False
        sizes = self.initializers.make(np.array(target, dtype=np.int64), "merged_shape")
        replace_node(node, "Reshape", [inner.inputs[0], sizes])
        return True


def _inner_shape_change(node: ir.Node) -> ir.Node | None:
    """The shape change in front of a node, if it can be removed once those behind it are merged."""
    value = node.inputs[0]
    if value is None or value.is_graph_output():
        return None
    readers = [reader for reader, _ in value.uses()]
    # Each of several readers is merged in turn; the last one removes the value.
    if len(readers) > 1 and all(
        reader.op_type in _SHAPES and reader.graph is node.graph for reader in readers
    ):
        inner = producer_of(value, *_SHAPES)
        return inner if inner is not None and inner.graph is node.graph else None
    return removable_producer(node, value, *_SHAPES)


def _copies_same_sizes(target: list[int], inner: ir.Node) -> bool:
    """Whether a Reshape to a target copies the same sizes from the operand of `inner` as from its result."""
    copied = [axis for axis, size in enumerate(target) if size == 0]
    if not copied:
        return True
    sizes = argument(inner, "shape", 1) if inner.op_type == "Reshape" else None
    if sizes is not None:
        return all(sizes[axis] == 0 for axis in copied)
    axes = argument(inner, "axes", 1) if inner.op_type in ("Squeeze", "Unsqueeze") else None
    # Axes in front of the first one that is added or removed keep their numbers.
    return axes is not None and min(axes, default=-1) > max(copied)


def _is_check(node: ir.Node) -> bool:
    """Whether a node is a Reshape that fails where the term that is added to the shape is not zero."""
    total = producer_of(node.inputs[1], "Add") if node.op_type == "Reshape" and len(node.inputs) > 1 else None
    return total is not None and any(producer_of(term, "Shape") is not None for term in total.inputs)


def reshape_target(shape: ir.Shape | None) -> list[int] | None:
    """A shape as the second input of Reshape, valid at every opset; None if Reshape cannot express it."""
    if shape is None:
        return None
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return None if 0 in sizes or sizes.count(-1) > 1 else sizes


def _merge_casts(node: ir.Node) -> bool:
    inner = removable_producer(node, node.inputs[0], "Cast")
    source = inner.inputs[0] if inner is not None else None
    if inner is None or source is None or source.dtype is None:
        return False
    between = ir.DataType(inner.attributes["to"].as_int())
    if dtypes.holding(source.dtype, (between,)) is None:
        return False
    if len(inner.attributes) > 1 or len(node.attributes) > 1:
        return False
    node.replace_input_with(0, source)
    return True

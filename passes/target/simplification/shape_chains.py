"""Target pass: merges operators that follow one another and only change the shape, or the element type.

1. Reshape, Squeeze, Unsqueeze and Flatten in a row become one Reshape, if at most one size of the result is
   unknown; several Unsqueezes or Squeezes of known axes become one otherwise.
2. A Cast of a Cast becomes one, if the first type holds every value of the operand's.
3. A Reshape to a computed shape that makes an output stays: below opset 11 a branch of an If hides its shape
   so, which onnxruntime would otherwise take for that of both branches.
4. A value in between that has other readers, or is an output, stays for those.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import dtypes
from ..initializers import Initializers

_SHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


class MergeShapeChains(ir.passes.InPlacePass):
    """Merges shape changes and casts that follow one another."""

    def __init__(self, initializers: Initializers):
        super().__init__()
        self._known = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.domain:
                continue
            if node.op_type in _SHAPES:
                modified |= self._merge_shapes(node)
            elif node.op_type == "Cast":
                modified |= _merge_casts(node)
        return ir.passes.PassResult(model, modified)

    def _merge_shapes(self, node: ir.Node) -> bool:
        inner = _before(node, *_SHAPES)
        if inner is None or inner.inputs[0] is None:
            return False
        target = _target(node.outputs[0].shape)
        if target is None:
            return False
        if node.op_type == "Reshape":
            given = (
                node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
            )
            own = None if given is None else given.numpy().tolist()
            if own is not None and 0 not in own:
                node.replace_input_with(0, inner.inputs[0])
                return True
            if own is None and node.outputs[0].is_graph_output():
                return False
        sizes = self._known.make(np.array(target, dtype=np.int64), "merged_shape")
        merged = ir.Node("", "Reshape", [inner.inputs[0], sizes], num_outputs=1, name=node.name)
        old, result, graph = node.outputs[0], merged.outputs[0], node.graph
        assert graph is not None
        result.name, result.type, result.shape = old.name, old.type, old.shape
        merged.metadata_props.update(node.metadata_props)
        graph.insert_before(node, merged)
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        return True


def _before(node: ir.Node, *op_types: str) -> ir.Node | None:
    """The node that makes the first operand and has nothing else to make, if it is one of these."""
    data = node.inputs[0]
    inner = data.producer() if data is not None else None
    if inner is None or data is None or inner.domain or inner.op_type not in op_types:
        return None
    if inner.graph is not node.graph or len(data.uses()) != 1 or data.is_graph_output():
        return None
    return inner


def _target(shape: ir.Shape | None) -> list[int] | None:
    """A shape as Reshape takes it, at every opset; None if it cannot say it."""
    if shape is None:
        return None
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return None if 0 in sizes or sizes.count(-1) > 1 else sizes


def _merge_casts(node: ir.Node) -> bool:
    inner = _before(node, "Cast")
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

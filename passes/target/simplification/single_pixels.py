"""Target pass: writes a Resize of single pixels as Expand: OpenCV 5 reads beyond them.

1. Each axis that changes its size has size 1, and the sizes of the result are known.
2. The mode takes values from the pixels alone (nearest or linear); coordinates do not leave the image.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import schemas
from ..initializers import Initializers

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")


class ExpandSinglePixels(ir.passes.InPlacePass):
    """Replaces Resize, and Upsample, of images of one pixel, such as pooled context."""

    def __init__(self, initializers: Initializers):
        super().__init__()
        self._known = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        if schemas.operator_schema("Expand", model.opset_imports.get("", 0)) is None:
            return ir.passes.PassResult(model, False)
        modified = False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if node.op_type in ("Resize", "Upsample") and not node.domain:
                modified |= self._expand(node)
        return ir.passes.PassResult(model, modified)

    def _expand(self, node: ir.Node) -> bool:
        source, old = node.inputs[0], node.outputs[0]
        if source is None or source.shape is None or old.shape is None or len(source.shape) != len(old.shape):
            return False
        repeated = [
            small == 1 and isinstance(large, int)
            for small, large in zip(source.shape, old.shape, strict=True)
        ]
        kept = [small == large for small, large in zip(source.shape, old.shape, strict=True)]
        if not old.shape.is_static() or 0 in old.shape or all(kept):
            return False
        if not all(one or same for one, same in zip(repeated, kept, strict=True)) or not _interpolates(node):
            return False
        sizes = self._known.make(np.array(old.shape.numpy(), np.int64), f"{node.name or 'Resize'}_sizes")
        new = ir.Node("", "Expand", [source, sizes], name=node.name)
        new.metadata_props.update(node.metadata_props)
        assert node.graph is not None
        result = new.outputs[0]
        result.name, result.type, result.shape = old.name, old.type, old.shape
        node.graph.insert_before(node, new)
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        node.graph.remove(node, safe=True)
        return True


def _interpolates(node: ir.Node) -> bool:
    """Whether every value of the result is one of the source's, or lies between two of them."""
    mode = node.attributes.get("mode")
    coordinates = node.attributes.get("coordinate_transformation_mode")
    if mode is not None and mode.as_string() not in ("nearest", "linear"):
        return False
    if "antialias" in node.attributes and node.attributes["antialias"].as_int():
        return False
    return coordinates is None or coordinates.as_string() in _COORDINATES

"""ONNX pass: writes a linear Resize of single pixels in mode nearest, because OpenCV 5 reads beyond them.

1. Each axis that changes its size has size 1, and the sizes of the result are known.
2. The mode takes values from the pixels alone (nearest or linear); coordinates do not leave the image.
"""

from __future__ import annotations

import onnx_ir as ir

from ..node_pass import NodePass
from ..pass_order import Run

_ROUNDED = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")


class RepeatSinglePixels(NodePass):
    """Changes Resize, and Upsample, of images of one pixel, such as pooled context."""

    runs = (
        Run(
            "basic", after={"FoldSmallResults": "Sizes of images are known once their computation is folded."}
        ),
    )
    op_types = ("Resize", "Upsample")

    def rewrite(self, node: ir.Node) -> bool:
        """Change the mode, if every resized axis has one pixel."""
        source, old = node.inputs[0], node.outputs[0]
        if source is None or source.shape is None or old.shape is None or len(source.shape) != len(old.shape):
            return False
        is_pixel = [
            small == 1 and isinstance(large, int)
            for small, large in zip(source.shape, old.shape, strict=True)
        ]
        is_unchanged = [small == large for small, large in zip(source.shape, old.shape, strict=True)]
        if not old.shape.is_static() or 0 in old.shape or all(is_unchanged):
            return False
        if not all(
            pixel or unchanged for pixel, unchanged in zip(is_pixel, is_unchanged, strict=True)
        ) or not _interpolates(node):
            return False
        if node.attributes.get_string("mode") != "linear":
            return False
        node.attributes["mode"] = ir.AttrString("mode", "nearest")
        schema = self.schema("Resize")
        if schema is not None:
            for name, value in _ROUNDED.items():
                if name in schema.attributes:
                    node.attributes[name] = ir.AttrString(name, value)
        return True


def _interpolates(node: ir.Node) -> bool:
    """Whether every value of the result is one of the source's, or lies between two of them."""
    if node.attributes.get_string("mode", "nearest") not in ("nearest", "linear"):
        return False
    if node.attributes.get_int("antialias", 0):
        return False
    return node.attributes.get_string("coordinate_transformation_mode", _COORDINATES[0]) in _COORDINATES

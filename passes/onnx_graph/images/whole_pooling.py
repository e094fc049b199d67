"""ONNX pass: writes pooling by one window that covers the image as global pooling.

1. The sizes of the image are known. The window begins at its first pixel or in the padding before it, and
   reaches its last pixel.
2. An AveragePool that counts padding has none, and a window of the size of the image.
3. The indices of a MaxPool must be unused.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.runtimes import has_kernel
from ..node_pass import NodePass, replace_node
from ..pass_order import Run

_GLOBAL = {"AveragePool": "GlobalAveragePool", "MaxPool": "GlobalMaxPool"}


class PoolWhole(NodePass):
    """Replaces AveragePool and MaxPool by global pooling."""

    runs = (
        Run(
            "basic", after={"FoldSmallResults": "Sizes of images are known once their computation is folded."}
        ),
    )
    op_types = tuple(_GLOBAL)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node whose only window covers the image."""
        image, name = node.inputs[0], _GLOBAL[node.op_type]
        if image is None or image.dtype is None or not has_kernel(name, image.dtype):
            return False
        if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
            return False
        if image.shape is None or not _covers(node, image.shape):
            return False
        replace_node(node, name, [image])
        return True


def _covers(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether the only window of a node covers an image."""
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    sizes, window = shape[2:], attributes.get("kernel_shape")
    if (
        window is None
        or len(window) != len(sizes)
        or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    ):
        return False
    count = len(window)
    pads, strides = attributes.get("pads", [0] * 2 * count), attributes.get("strides", [1] * count)
    if any(step != 1 for step in attributes.get("dilations", ())):
        return False
    exact = bool(attributes.get("count_include_pad", 0)) and node.op_type == "AveragePool"
    for axis, size in enumerate(sizes):
        if not isinstance(size, int) or size < 1:
            return False
        before, after = pads[axis], pads[count + axis]
        remainder = size + before + after - window[axis]
        if exact and (before or after or remainder):
            return False
        # A negative remainder is a window that ceil_mode completes.
        positions = 1 + (
            -(-remainder // strides[axis]) if attributes.get("ceil_mode", 0) else remainder // strides[axis]
        )
        if positions != 1 or not before <= window[axis] - size:
            return False
    return True

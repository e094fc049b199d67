"""ONNX pass: keeps onnxruntime from merging a Pad of zeros into the MaxPool after it.

onnxruntime's Pad_Fusion does so up to at least 1.31, but the padding of MaxPool counts as minus infinity, so
that windows of negative numbers get other results. It leaves a MaxPool with `auto_pad`, or with positions.

1. A MaxPool without padding gets `auto_pad="VALID"`, which is equivalent.
2. Another one gets its second output, if the opset has that.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.schemas import OperatorSchema
from ..node_pass import NodePass
from ..pass_order import Run


class SeparatePaddedPools(NodePass):
    """Marks each MaxPool that reads a Pad of zeros."""

    runs = (Run("none", after={"RemoveUnusedAtEnd": "Nodes that are removed need no change."}),)
    op_types = ("MaxPool",)

    def rewrite(self, node: ir.Node) -> bool:
        """Mark a MaxPool, if it reads a Pad of zeros."""
        return _pads_zeros(node.inputs[0]) and _mark(node, self.schema("MaxPool"))


def _pads_zeros(value: ir.Value | None) -> bool:
    """Whether a Pad computes the value, with zeros unless its constant is known to differ."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "Pad" or node.domain:
        return False
    if node.attributes.get_string("mode", "constant") != "constant":
        return False
    if "value" in node.attributes:
        return node.attributes.get_float("value") == 0
    pad_value = node.inputs[2] if len(node.inputs) > 2 else None
    return pad_value is None or pad_value.const_value is None or not pad_value.const_value.numpy().any()


def _mark(node: ir.Node, schema: OperatorSchema | None) -> bool:
    if node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET" or len(node.outputs) > 1:
        return False
    if not any(node.attributes.get_ints("pads", ())) and not node.attributes.get_int("ceil_mode", 0):
        node.attributes.pop("pads", None)
        node.attributes["auto_pad"] = ir.AttrString("auto_pad", "VALID")
        return True
    if schema is None or len(schema.outputs) < 2:
        return False
    node.resize_outputs(2)
    indices = node.outputs[1]
    indices.name = f"{node.outputs[0].name}_positions"
    indices.type, indices.shape = ir.TensorType(ir.DataType.INT64), node.outputs[0].shape
    return True

"""ONNX pass: replaces the mask of an Attention that masks all later keys by `is_causal`.

Without a cache, the causal mask of Attention is aligned at the top left: a query sees the keys up to its own
position, counted from 0 (https://onnx.ai/onnx/operators/onnx__Attention.html).

1. The mask is a condition, or adds 0 and -inf, and keeps exactly the keys up to the query's position.
2. The Attention has no inputs behind its mask: no cache, and no lengths of padded keys.
3. There are as many keys as queries, so that a runtime with another alignment computes the same.
"""

from __future__ import annotations

import onnx_ir as ir

from .....registration.size_algebra.dimensions import same_size
from ...node_pass import ConstantPass, remove_unread
from ...pass_order import Run
from .causal_masks import is_causal_condition, is_causal_mask

_MASK = 3


class ReadCausalMasks(ConstantPass):
    """Writes causal masks of Attention as an attribute."""

    runs = (
        Run(
            "full",
            after={
                "RefineAndFold": "Masks must be folded.",
                "BroadcastNamed": "Causal masks without an And or an Expand are recognised.",
            },
        ),
    )
    op_types = ("Attention",)

    def rewrite(self, node: ir.Node) -> bool:
        """Replace the mask of an Attention, if it is causal."""
        mask = node.inputs[_MASK] if len(node.inputs) == _MASK + 1 else None
        shapes = [None if value is None else value.shape for value in node.inputs[:2]]
        lengths = [shape[-2] for shape in shapes if shape is not None and len(shape) > 2]
        if mask is None or len(lengths) < 2 or not same_size(*lengths):
            return False
        if mask.dtype == ir.DataType.BOOL:
            is_causal = is_causal_condition(self.initializers, mask, True)
        else:
            is_causal = is_causal_mask(self.initializers, mask, -float("inf"))
        if not is_causal:
            return False
        node.resize_inputs(_MASK)
        node.attributes.add(ir.AttrInt64("is_causal", 1))
        producer = mask.producer()
        if producer is not None:
            remove_unread(producer)
        return True

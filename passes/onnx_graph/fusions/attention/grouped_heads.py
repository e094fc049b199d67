"""ONNX pass: removes the repetition of heads of keys and values before Attention, which repeats them itself.

    Unsqueeze(key, 2) -> Expand by n -> Reshape -> Attention      becomes      key -> Attention

From opset 23 on, Attention gives each head of the keys and values to several heads of the query in a row
(https://onnx.ai/onnx/operators/onnx__Attention.html).

1. Keys and values are repeated the same number of times, and nothing else reads the repeated ones.
2. All sizes are known, or are the same symbols before and after. There is no cache.
"""

from __future__ import annotations

import onnx_ir as ir

from ...node_pass import NodePass, exclusive_producer
from ...pass_order import Run
from ...pattern_matcher import op, value
from ..axes import added_axes

HEADS = 1
"""The axis of the heads."""
_REPEATED = 2
"""The axis that Unsqueeze inserts, along which heads are repeated."""


class GroupHeads(NodePass):
    """Removes repetitions of heads in front of Attention."""

    runs = (Run("full", after={"FuseAttention": "Only Attention repeats heads itself."}),)
    op_types = ("Attention",)

    def rewrite(self, node: ir.Node) -> bool:
        """Let an Attention read keys and values that are not repeated."""
        if len(node.inputs) > 4 and any(value is not None for value in node.inputs[4:]):
            return False
        used = [value for value in node.outputs[1:] if value.uses() or value.is_graph_output()]
        query = node.inputs[0]
        if used or query is None or query.shape is None or len(query.shape) != 4:
            return False
        reshapes = [exclusive_producer(value, "Reshape") for value in node.inputs[1:3]]
        sources = [None if reshape is None else repetition_source(reshape) for reshape in reshapes]
        if len(sources) < 2 or any(value is None for value in sources):
            return False
        key, value = sources
        heads = [
            operand.shape[HEADS]
            for operand in (query, key, value)
            if operand is not None and operand.shape is not None
        ]
        # Attention takes one number of heads for keys and values.
        if heads[1] != heads[2] or not all(isinstance(count, int) for count in heads):
            return False
        node.replace_input_with(1, key)
        node.replace_input_with(2, value)
        return True


_REPETITION = op("Reshape", op("Expand", op("Unsqueeze", value("data")).label("inserted")).label("expanded"))


def repetition_source(reshape: ir.Node) -> ir.Value | None:
    """The tensor whose heads the result of a Reshape repeats; None if it repeats none."""
    match = _REPETITION.find(reshape)
    if match is None:
        return None
    data = match["data"]
    before, after = data.shape, reshape.outputs[0].shape
    inserted, expanded = match["inserted"].shape, match["expanded"].shape
    if before is None or inserted is None or expanded is None or after is None:
        return None
    if (len(before), len(inserted), len(expanded), len(after)) != (4, 5, 5, 4) or not _are_known(expanded):
        return None
    sizes, times = [*before], expanded[_REPEATED]
    if not isinstance(times, int) or not isinstance(before[HEADS], int):
        return None
    is_inserted = [*inserted] == [*sizes[:_REPEATED], 1, *sizes[_REPEATED:]]
    is_expanded = [*expanded] == [*sizes[:_REPEATED], times, *sizes[_REPEATED:]]
    is_joined = [*after] == [sizes[0], before[HEADS] * times, *sizes[_REPEATED:]]
    is_at_heads = added_axes(match.node("inserted")) == [_REPEATED - len(inserted)]
    return data if is_inserted and is_at_heads and is_expanded and is_joined else None


def _are_known(shape: ir.Shape) -> bool:
    return all(isinstance(size, int) or size.value is not None for size in shape)

"""Non-maximum suppression of boxes `[x1, y1, x2, y2]`.

Semantics: torchvision/csrc/ops/cpu/nms_kernel.cpp. A box whose width or height is negative neither suppresses
a box nor is suppressed.
"""

import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.list_values import loop_inputs
from ..compositions.size_arithmetic import where_true

_ALL = 2**31 - 1
"""More boxes than there can be. Some devices read the number as INT32."""


def _corners(g: GraphContext, boxes: Value) -> tuple[Value, Value]:
    """The corners `[boxes, 2]` of least and greatest coordinates."""
    low, high = (g.op("Slice", boxes, starts=[start], ends=[start + 2], axes=[1]) for start in (0, 2))
    return low, high


def _clamp_boxes(g: GraphContext, dets: Value) -> Value:
    """The boxes, with negative widths and heights as 0; ONNX's operator would swap the corners instead."""
    low, high = _corners(g, dets)
    return g.op("Concat", low, g.op("Max", low, high), axis=1)


@onnx_symbolic("torchvision::nms")
def greedy_suppression(g: GraphContext, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """A loop over the boxes, best first: each removes the later ones that it overlaps too much."""
    _, order = g.call_outputs("aten::sort", self=scores, dim=0, descending=True)
    boxes = g.op("Gather", _clamp_boxes(g, dets), order, axis=0)
    dtype, count = g.dtype(dets) or DataType.FLOAT, g.size(dets, 0)
    low, high = _corners(g, boxes)

    def area(least: Value, greatest: Value) -> Value:
        sides = g.op("Max", g.op("Sub", greatest, least), g.constant(0.0, dtype))
        return g.op("ReduceProd", sides, axes=[1], keepdims=0)

    areas, positions = area(low, high), g.call("sym::range", start=0, end=count)
    threshold = g.constant(iou_threshold, dtype)

    def build(iteration: Value, keep_going: Value, selected: Value) -> list[Value]:
        corner_low, corner_high = (
            g.op("Gather", corner, g.op("Unsqueeze", iteration, axes=[0]), axis=0) for corner in (low, high)
        )
        common = area(g.op("Max", low, corner_low), g.op("Min", high, corner_high))
        union = g.op("Sub", g.op("Add", areas, g.op("Gather", areas, iteration, axis=0)), common)
        overlaps = g.op("Greater", g.op("Div", common, union), threshold)
        is_later = g.op("Greater", positions, iteration)
        removed = g.op("And", g.op("And", overlaps, is_later), g.op("Gather", selected, iteration, axis=0))
        return [keep_going, g.op("And", selected, g.op("Not", removed))]

    initial = g.call("composed::full", size=[count], fill_value=True, dtype=DataType.BOOL)
    formal = Value(name="selected", type=ir.TensorType(DataType.BOOL), shape=ir.Shape([None]))
    body = g.subgraph(build, [*loop_inputs(), formal], "boxes")
    selected = g.op("Loop", g.constant(count, DataType.INT64), None, initial, body=body)
    selected.type, selected.shape = formal.type, initial.shape
    return g.op("Gather", order, where_true(g, selected), axis=0)


@onnx_symbolic("torchvision::nms", opset=10)
def nms(g: GraphContext, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """From 10: NonMaxSuppression, which takes FLOAT only."""
    if g.dtype(dets) == DataType.DOUBLE:
        return greedy_suppression(g, dets, scores, iou_threshold)
    selected = g.op(
        "NonMaxSuppression",
        g.op("Unsqueeze", _clamp_boxes(g, g.cast(dets, DataType.FLOAT)), axes=[0]),
        g.op("Unsqueeze", g.cast(scores, DataType.FLOAT), axes=[0, 1]),
        g.constant([_ALL]),
        g.constant([iou_threshold], DataType.FLOAT),
    )
    # Rows are [image, class, box].
    return g.op("Squeeze", g.op("Slice", selected, starts=[2], ends=[3], axes=[1]), axes=[1])

"""Boxes drawn into images. Semantics: tensorflow/core/kernels/image/draw_bounding_box_op.cc."""

import numpy as np

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import compute
from ..._common import range_vector

_COLORS = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)
"""Yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia; opaque."""


@onnx_symbolic("tf::DrawBoundingBoxesV2")
def draw_bounding_boxes_v2(g: GraphContext, images: Value, boxes: Value, colors: Value) -> Value:
    """Lines one pixel wide; a later box covers an earlier one. `boxes` are [batch, count, 4] from 0 to 1."""
    channels = g.size(images, 3)
    if not isinstance(channels, int):
        raise g.refuse("the number of channels is unknown")
    shape = g.shape(colors)
    if shape is None or not isinstance(shape[0], int):
        raise g.refuse("the number of colors is unknown")
    if not shape[0]:
        # In grey images the red of each color is 1.
        table = g.constant(_COLORS[:, :channels] if channels > 1 else np.ones((len(_COLORS), 1), np.float32))
        return _draw(g, images, boxes, table, len(_COLORS))
    table = g.call("aten::slice", self=g.cast(colors, DataType.FLOAT), dim=1, start=0, end=channels)
    return _draw(g, images, boxes, table, shape[0])


@onnx_symbolic("tf::DrawBoundingBoxes")
def draw_bounding_boxes(g: GraphContext, images: Value, boxes: Value) -> Value:
    return draw_bounding_boxes_v2(g, images, boxes, g.constant(np.zeros((0, 4), np.float32)))


def _draw(g: GraphContext, images: Value, boxes: Value, colors: Value, count: int) -> Value:
    on_edge: list[tuple[Value, Value]] = []
    fits: Value | None = None
    for axis in (0, 1):
        last = compute(g, "sub", g.size(images, axis + 1), 1)
        limit = g.constant(last, DataType.INT64)
        scale = g.cast(limit, DataType.FLOAT)
        low, high = (
            # The conversion to integers cuts off the fraction, of negative numbers too.
            g.cast(g.op("Mul", g.op("Gather", boxes, axis + side, axis=2), scale), DataType.INT64)
            for side in (0, 2)
        )
        low, high = (g.op("Unsqueeze", edge, axes=[2]) for edge in (low, high))
        positions = range_vector(g, compute(g, "add", last, 1))
        within = g.op(
            "And", *(g.op("Not", g.op("Less", *pair)) for pair in ((positions, low), (high, positions)))
        )
        edges = g.op("Or", g.op("Equal", positions, low), g.op("Equal", positions, high))
        on_edge.append((within, edges))
        outside = g.op(
            "Or", g.op("Less", high, low), g.op("Or", g.op("Less", limit, low), g.op("Less", high, 0))
        )
        inside = g.op("Not", outside)
        fits = inside if fits is None else g.op("And", fits, inside)
    (rows, row_edges), (columns, column_edges) = (
        tuple(g.op("Unsqueeze", mask, axes=[3 - axis]) for mask in masks)
        for axis, masks in enumerate(on_edge)
    )
    lines = g.op("Or", g.op("And", row_edges, columns), g.op("And", rows, column_edges))
    drawn = g.cast(g.op("And", lines, g.op("Unsqueeze", fits, axes=[3])), DataType.INT32)
    # Each pixel has the number of the last box that covers it, and 0 without one.
    numbers = g.op("Add", range_vector(g, g.size(boxes, 1)), 1)
    numbers = g.op("Unsqueeze", g.cast(numbers, DataType.INT32), axes=[1, 2])
    covering = g.op("ReduceMax", g.op("Mul", drawn, numbers), axes=[1], keepdims=0)
    position = g.call("aten::remainder", g.op("Sub", g.cast(covering, DataType.INT64), 1), count)
    is_drawn = g.op("Unsqueeze", g.op("Greater", covering, 0), axes=[3])
    color = g.cast(g.op("Gather", colors, position, axis=0), g.dtype(images) or DataType.FLOAT)
    return g.op("Where", is_drawn, color, images)

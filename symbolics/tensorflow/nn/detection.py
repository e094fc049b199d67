"""Non-maximum suppression of boxes, and greedy decoding of CTC."""

from __future__ import annotations

from ....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...compositions.size_arithmetic import compute, product
from .._common import constant_integer
from .layout import ranked


def _vector(g: GraphContext, value: Value | Number, dtype: DataType) -> Value:
    """A number as a tensor of one element."""
    return g.op("Reshape", g.constant(value, dtype), [1])


def _selected(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value | float,
    score_threshold: Value | None,
) -> Value:
    """The indices of the selected boxes, best first, INT64."""
    chosen = g.op(
        "NonMaxSuppression",
        g.op("Unsqueeze", g.cast(boxes, DataType.FLOAT), axes=[0]),
        g.op("Unsqueeze", g.cast(scores, DataType.FLOAT), axes=[0, 1]),
        _vector(g, max_output_size, DataType.INT64),
        _vector(g, iou_threshold, DataType.FLOAT),
        None if score_threshold is None else _vector(g, score_threshold, DataType.FLOAT),
    )
    return g.op("Squeeze", g.op("Slice", ranked(g, chosen, 2), starts=[2], ends=[3], axes=[1]), axes=[1])


def _to_int32(g: GraphContext, value: Value) -> Value:
    return g.cast(value, DataType.INT32)


@onnx_symbolic("tf::NonMaxSuppression")
def non_max_suppression(
    g: GraphContext, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: float = 0.5
) -> Value:
    return _to_int32(g, _selected(g, boxes, scores, max_output_size, iou_threshold, None))


@onnx_symbolic("tf::NonMaxSuppressionV2")
def non_max_suppression_v2(
    g: GraphContext, boxes: Value, scores: Value, max_output_size: Value, iou_threshold: Value
) -> Value:
    return _to_int32(g, _selected(g, boxes, scores, max_output_size, iou_threshold, None))


@onnx_symbolic("tf::NonMaxSuppressionV3")
def non_max_suppression_v3(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value,
    score_threshold: Value,
) -> Value:
    return _to_int32(g, _selected(g, boxes, scores, max_output_size, iou_threshold, score_threshold))


def _count(g: GraphContext, chosen: Value) -> Value:
    return g.op("Reshape", g.op("Shape", chosen), g.constant([], DataType.INT64))


def _lengthened(g: GraphContext, values: Value, count: Value, size: Value) -> Value:
    """Pad the values with zeros at the end, up to a size."""
    total = g.op("Reshape", g.cast(size, DataType.INT64), g.constant([], DataType.INT64))
    more = g.op("Sub", total, count)
    return ranked(g, g.call("composed::pad", values, [0], [more], 0), 1)


@onnx_symbolic("tf::NonMaxSuppressionV4")
def non_max_suppression_v4(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value,
    score_threshold: Value,
    pad_to_max_output_size: bool = False,
) -> list[Value]:
    """Also returns the number of selected boxes."""
    chosen = _selected(g, boxes, scores, max_output_size, iou_threshold, score_threshold)
    count = _count(g, chosen)
    if pad_to_max_output_size:
        chosen = _lengthened(g, chosen, count, max_output_size)
    return [_to_int32(g, chosen), _to_int32(g, count)]


@onnx_symbolic("tf::NonMaxSuppressionV5")
def non_max_suppression_v5(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value,
    score_threshold: Value,
    soft_nms_sigma: Value,
    pad_to_max_output_size: bool = False,
) -> list[Value]:
    """Also returns the scores and the number of selected boxes."""
    sigma = g.constant_value(soft_nms_sigma)
    if sigma is None or sigma.any():
        raise g.refuse("soft_nms_sigma must be 0: ONNX has no soft suppression")
    chosen = _selected(g, boxes, scores, max_output_size, iou_threshold, score_threshold)
    count, best = _count(g, chosen), g.op("Gather", scores, chosen, axis=0)
    if pad_to_max_output_size:
        chosen, best = (_lengthened(g, each, count, max_output_size) for each in (chosen, best))
    return [_to_int32(g, chosen), best, _to_int32(g, count)]


def _per_class(g: GraphContext, boxes: Value, scores: Value) -> tuple[Value, Value]:
    """Boxes `[n, boxes, 4]`, scores `[n, classes, boxes]`; a class with boxes of its own becomes an image."""
    own = g.size(boxes, 2)
    scores = g.op("Transpose", scores, perm=[0, 2, 1])
    if own == 1:
        return g.op("Squeeze", boxes, axes=[2]), scores
    if not isinstance(own, int):
        raise g.refuse("the third dimension of the boxes must be known")
    boxes = g.op("Transpose", boxes, perm=[0, 2, 1, 3])
    count = g.size(boxes, 2)
    return g.op("Reshape", boxes, [-1, count, 4]), g.op("Reshape", scores, [-1, 1, count])


@onnx_symbolic("tf::CombinedNonMaxSuppression")
def combined_non_max_suppression(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size_per_class: Value,
    max_total_size: Value,
    iou_threshold: Value,
    score_threshold: Value,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
) -> list[Value]:
    """The best boxes of all classes of each image: corners, scores, classes, and the number of boxes.

    Boxes that are not selected get the score minus infinity; then TopK selects the best.
    """
    ranked(g, boxes, 4)
    ranked(g, scores, 3)
    batch, count, classes = (g.size(scores, axis) for axis in range(3))
    images, by_class = _per_class(g, boxes, scores)
    chosen = g.op(
        "NonMaxSuppression",
        images,
        by_class,
        _vector(g, max_output_size_per_class, DataType.INT64),
        _vector(g, iou_threshold, DataType.FLOAT),
        _vector(g, score_threshold, DataType.FLOAT),
    )
    parts = [g.op("Slice", chosen, starts=[i], ends=[i + 1], axes=[1]) for i in range(3)]
    rows = g.op("Add", g.op("Mul", parts[0], g.size(by_class, 1)), parts[1])
    places = g.op("Add", g.op("Mul", rows, count), parts[2])
    each = compute(g, "mul", classes, count)
    zeros = g.op("ConstantOfShape", g.stack([product(g, [batch, each])]), value=[0.0])
    ones = g.op("ConstantOfShape", g.op("Slice", g.op("Shape", chosen), starts=[0], ends=[1]), value=[1.0])
    mask = g.op("Greater", g.op("ScatterND", zeros, places, ones), 0.0)
    every = g.op("Where", mask, g.op("Reshape", by_class, [-1]), float("-inf"))
    every = g.op("Reshape", every, [batch, each])
    total = constant_integer(g, max_total_size, "max_total_size")
    if pad_per_class:
        most = g.constant_value(max_output_size_per_class)
        if most is None or not isinstance(classes, int):
            raise g.refuse("the sizes of the result must be known for pad_per_class")
        total = min(total, int(most.item()) * classes)
    short = compute(g, "max", compute(g, "sub", total, each), 0)
    if short != 0:
        every = g.call("composed::pad", every, [0, 0], [0, short], float("-inf"))
    best, where = (ranked(g, each, 2) for each in g.op("TopK", every, k=[total], axis=1, outputs=2))
    valid = g.op("Greater", best, float("-inf"))
    where = g.op("Where", valid, where, 0)
    kinds = g.op("Div", where, g.constant(count))
    number = g.op("Sub", where, g.op("Mul", kinds, count))
    starts = g.op("Reshape", g.constant(g.call("sym::range", start=0, end=batch)), [-1, 1])
    own = g.size(boxes, 2)
    flat = g.op("Add", g.op("Mul", starts, count), number)
    if own != 1:
        flat = g.op("Add", g.op("Mul", flat, own), kinds)
    corners = g.op("Gather", g.op("Reshape", boxes, [-1, 4]), flat, axis=0)
    if clip_boxes:
        corners = g.op("Clip", corners, min=0.0, max=1.0)
    shown = g.cast(valid, DataType.FLOAT)
    amount = g.op("ReduceSum", g.cast(valid, DataType.INT32), axes=[1], keepdims=0)
    return [
        g.op("Mul", corners, g.op("Unsqueeze", shown, axes=[2])),
        g.op("Where", valid, best, 0.0),
        g.op("Mul", g.cast(kinds, DataType.FLOAT), shown),
        amount,
    ]


@onnx_symbolic("tf::CTCGreedyDecoder")
def ctc_greedy_decoder(
    g: GraphContext,
    inputs: Value,
    sequence_length: Value,
    merge_repeated: bool = False,
    blank_index: int = -1,
) -> list[Value]:
    """The most likely labels of each sequence, without blanks, as a sparse matrix; their log probability."""
    ranked(g, inputs, 3)
    steps, batch, classes = (g.size(inputs, axis) for axis in range(3))
    labels = g.op("Transpose", ranked(g, g.op("ArgMax", inputs, axis=2, keepdims=0), 2), perm=[1, 0])
    blank = blank_index if blank_index >= 0 else compute(g, "add", classes, blank_index)
    numbers = g.constant(g.call("sym::range", start=0, end=steps))
    lengths = g.op("Unsqueeze", g.cast(sequence_length, DataType.INT64), axes=[1])
    within = g.op("Less", numbers, lengths)
    kept = g.op("And", within, g.op("Not", g.op("Equal", labels, g.constant(blank))))
    if merge_repeated:
        before = g.op("Slice", labels, starts=[0], ends=[-1], axes=[1])
        before = g.call("composed::pad", before, [0, 1], [0, 0], -1)
        kept = g.op("And", kept, g.op("Not", g.op("Equal", labels, before)))
    whole = g.cast(kept, DataType.INT64)
    places = g.op("Transpose", ranked(g, g.op("NonZero", whole), 2), perm=[1, 0])
    order = g.op("Sub", g.op("CumSum", whole, g.constant(1)), 1)
    column = g.op("Unsqueeze", ranked(g, g.op("GatherND", order, places), 1), axes=[1])
    rows = g.op("Slice", places, starts=[0], ends=[1], axes=[1])
    most = g.op("ReduceMax", g.op("ReduceSum", whole, axes=[1], keepdims=0), keepdims=1)
    best = g.op("Transpose", g.op("ReduceMax", inputs, axes=[2], keepdims=0), perm=[1, 0])
    total = g.op("ReduceSum", g.op("Where", within, best, 0.0), axes=[1], keepdims=1)
    return [
        g.op("Concat", rows, column, axis=1),
        ranked(g, g.op("GatherND", labels, places), 1),
        g.op("Concat", g.stack([batch]), most, axis=0),
        g.op("Neg", total),
    ]

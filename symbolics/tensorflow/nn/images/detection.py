"""Non-maximum suppression of boxes, and greedy CTC decoding."""

from .....registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ....compositions.moments import cast_like
from ....compositions.operator_tables import register_variant
from ....compositions.size_arithmetic import Size, compute, product
from ..._common import constant_integer, range_vector
from ..layout import set_rank
from .suppression import overlaps_of, suppress


def _one_element_vector(g: GraphContext, value: Value | Number, dtype: DataType) -> Value:
    """A number as a tensor of one element."""
    return g.op("Reshape", g.constant(value, dtype), [1])


def _select_boxes(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value | float,
    score_threshold: Value | None,
) -> Value:
    """The indices of the selected boxes, best first, INT64."""
    if not g.has("NonMaxSuppression"):
        overlaps = overlaps_of(g, boxes)
        return suppress(g, overlaps, scores, max_output_size, iou_threshold, score_threshold)[0]
    selected = g.op(
        "NonMaxSuppression",
        # ONNX's NonMaxSuppression takes FLOAT only.
        g.op("Unsqueeze", g.cast(boxes, DataType.FLOAT), axes=[0]),
        g.op("Unsqueeze", g.cast(scores, DataType.FLOAT), axes=[0, 1]),
        _one_element_vector(g, max_output_size, DataType.INT64),
        _one_element_vector(g, iou_threshold, DataType.FLOAT),
        None if score_threshold is None else _one_element_vector(g, score_threshold, DataType.FLOAT),
    )
    return g.op("Squeeze", g.op("Slice", set_rank(g, selected, 2), starts=[2], ends=[3], axes=[1]), axes=[1])


@onnx_symbolic("tf::NonMaxSuppressionV3")
def non_max_suppression(
    g: GraphContext,
    boxes: Value,
    scores: Value,
    max_output_size: Value,
    iou_threshold: Value | float = 0.5,
    score_threshold: Value | None = None,
) -> Value:
    selected = _select_boxes(g, boxes, scores, max_output_size, iou_threshold, score_threshold)
    return g.cast(selected, DataType.INT32)


register_variant(
    ["tf::NonMaxSuppression", "tf::NonMaxSuppressionV2"], non_max_suppression, score_threshold=None
)


def _count(g: GraphContext, selected: Value) -> Value:
    return g.op("Reshape", g.op("Shape", selected), g.constant([], DataType.INT64))


def _pad_to_size(g: GraphContext, values: Value, count: Value, size: Value) -> Value:
    """Pad the values with zeros at the end, up to a size."""
    total = g.op("Reshape", g.cast(size, DataType.INT64), g.constant([], DataType.INT64))
    missing = g.op("Sub", total, count)
    return set_rank(g, g.call("composed::pad", values, [0], [missing], 0), 1)


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
    selected = _select_boxes(g, boxes, scores, max_output_size, iou_threshold, score_threshold)
    count = _count(g, selected)
    if pad_to_max_output_size:
        selected = _pad_to_size(g, selected, count, max_output_size)
    return [g.cast(selected, DataType.INT32), g.cast(count, DataType.INT32)]


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
    if sigma is None:
        raise g.refuse("soft_nms_sigma must be constant")
    if sigma.item() > 0:
        thresholds = (iou_threshold, score_threshold, float(sigma.item()))
        selected, best = suppress(g, overlaps_of(g, boxes), scores, max_output_size, *thresholds)
        best = cast_like(g, best, scores)
    else:
        selected = _select_boxes(g, boxes, scores, max_output_size, iou_threshold, score_threshold)
        best = g.op("Gather", scores, selected, axis=0)
    count = _count(g, selected)
    if pad_to_max_output_size:
        selected, best = (_pad_to_size(g, values, count, max_output_size) for values in (selected, best))
    return [g.cast(selected, DataType.INT32), best, g.cast(count, DataType.INT32)]


@onnx_symbolic("tf::NonMaxSuppressionWithOverlaps")
def non_max_suppression_with_overlaps(
    g: GraphContext,
    overlaps: Value,
    scores: Value,
    max_output_size: Value,
    overlap_threshold: Value,
    score_threshold: Value,
) -> Value:
    def overlaps_with(box: Value) -> Value:
        return set_rank(g, g.op("Gather", overlaps, box, axis=1), 1)

    selected, _ = suppress(g, overlaps_with, scores, max_output_size, overlap_threshold, score_threshold)
    return g.cast(selected, DataType.INT32)


def _per_class(g: GraphContext, boxes: Value, scores: Value) -> tuple[Value, Value]:
    """Boxes `[n, boxes, 4]` and scores `[n, classes, boxes]`, the layout of NonMaxSuppression.

    If each class has boxes of its own, each class of each image becomes an image.
    """
    box_classes = g.size(boxes, 2)
    scores = g.op("Transpose", scores, perm=[0, 2, 1])
    if box_classes == 1:
        return g.op("Squeeze", boxes, axes=[2]), scores
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
    set_rank(g, boxes, 4)
    set_rank(g, scores, 3)
    batch, count, classes = (g.size(scores, axis) for axis in range(3))
    if not isinstance(g.size(boxes, 2), int):
        # All classes share one box, or each has its own.
        boxes = set_rank(g, g.op("Expand", boxes, g.stack([batch, count, classes, 4])), 4)
    images, by_class = _per_class(g, boxes, scores)
    selected = g.op(
        "NonMaxSuppression",
        images,
        by_class,
        _one_element_vector(g, max_output_size_per_class, DataType.INT64),
        _one_element_vector(g, iou_threshold, DataType.FLOAT),
        _one_element_vector(g, score_threshold, DataType.FLOAT),
    )
    # NonMaxSuppression returns rows of [image, class, box].
    columns = [g.op("Slice", selected, starts=[i], ends=[i + 1], axes=[1]) for i in range(3)]
    rows = g.op("Add", g.op("Mul", columns[0], g.size(by_class, 1)), columns[1])
    positions = g.op("Add", g.op("Mul", rows, count), columns[2])
    scores_per_image = compute(g, "mul", classes, count)
    zeros = g.op("ConstantOfShape", g.stack([product(g, [batch, scores_per_image])]), value=[0.0])
    selected_count = g.op("Slice", g.op("Shape", selected), starts=[0], ends=[1])
    marks = g.op("ConstantOfShape", selected_count, value=[1.0])
    mask = g.op("Greater", g.op("ScatterND", zeros, positions, marks), 0.0)
    all_scores = g.op("Where", mask, g.op("Reshape", by_class, [-1]), float("-inf"))
    all_scores = g.op("Reshape", all_scores, [batch, scores_per_image])
    total: Size = constant_integer(g, max_total_size, "max_total_size")
    if pad_per_class:
        maximum_per_class = g.constant_value(max_output_size_per_class)
        if maximum_per_class is None:
            raise g.refuse("'max_output_size_per_class' must be constant for pad_per_class")
        total = compute(g, "min", total, compute(g, "mul", classes, int(maximum_per_class.item())))
    # TopK needs at least `total` scores.
    missing = compute(g, "max", compute(g, "sub", total, scores_per_image), 0)
    if missing != 0:
        all_scores = g.call("composed::pad", all_scores, [0, 0], [0, missing], float("-inf"))
    best, best_positions = (
        set_rank(g, value, 2) for value in g.op("TopK", all_scores, k=[total], axis=1, outputs=2)
    )
    valid = g.op("Greater", best, float("-inf"))
    # The positions of padding are out of range.
    best_positions = g.op("Where", valid, best_positions, 0)
    class_ids = g.op("Div", best_positions, g.constant(count))
    box_ids = g.op("Sub", best_positions, g.op("Mul", class_ids, count))
    starts = g.op("Reshape", range_vector(g, batch), [-1, 1])
    box_classes = g.size(boxes, 2)
    flat_positions = g.op("Add", g.op("Mul", starts, count), box_ids)
    # The boxes are [image, box, class].
    if box_classes != 1:
        flat_positions = g.op("Add", g.op("Mul", flat_positions, box_classes), class_ids)
    corners = g.op("Gather", g.op("Reshape", boxes, [-1, 4]), flat_positions, axis=0)
    if clip_boxes:
        corners = g.op("Clip", corners, min=0.0, max=1.0)
    validity = g.cast(valid, DataType.FLOAT)
    valid_count = g.op("ReduceSum", g.cast(valid, DataType.INT32), axes=[1], keepdims=0)
    return [
        g.op("Mul", corners, g.op("Unsqueeze", validity, axes=[2])),
        g.op("Where", valid, best, 0.0),
        g.op("Mul", g.cast(class_ids, DataType.FLOAT), validity),
        valid_count,
    ]


@onnx_symbolic("tf::CTCGreedyDecoder")
def ctc_greedy_decoder(
    g: GraphContext,
    inputs: Value,
    sequence_length: Value,
    merge_repeated: bool = False,
    blank_index: int = -1,
) -> list[Value]:
    """The most likely labels of each sequence, without blanks, as a sparse matrix; their negated score."""
    set_rank(g, inputs, 3)
    steps, batch, classes = (g.size(inputs, axis) for axis in range(3))
    labels = g.op("Transpose", set_rank(g, g.op("ArgMax", inputs, axis=2, keepdims=0), 2), perm=[1, 0])
    blank = blank_index if blank_index >= 0 else compute(g, "add", classes, blank_index)
    numbers = range_vector(g, steps)
    lengths = g.op("Unsqueeze", g.cast(sequence_length, DataType.INT64), axes=[1])
    within = g.op("Less", numbers, lengths)
    is_label = g.op("And", within, g.op("Not", g.op("Equal", labels, g.constant(blank))))
    if merge_repeated:
        previous_labels = g.op("Slice", labels, starts=[0], ends=[-1], axes=[1])
        # -1 is not a label, so the first step never repeats one.
        previous_labels = g.call("composed::pad", previous_labels, [0, 1], [0, 0], -1)
        is_label = g.op("And", is_label, g.op("Not", g.op("Equal", labels, previous_labels)))
    label_flags = g.cast(is_label, DataType.INT64)
    positions = g.op("Transpose", set_rank(g, g.op("NonZero", label_flags), 2), perm=[1, 0])
    order = g.op("Sub", g.op("CumSum", label_flags, g.constant(1)), 1)
    column = g.op("Unsqueeze", set_rank(g, g.op("GatherND", order, positions), 1), axes=[1])
    rows = g.op("Slice", positions, starts=[0], ends=[1], axes=[1])
    longest = g.op("ReduceMax", g.op("ReduceSum", label_flags, axes=[1], keepdims=0), keepdims=1)
    best = g.op("Transpose", g.op("ReduceMax", inputs, axes=[2], keepdims=0), perm=[1, 0])
    total = g.op("ReduceSum", g.op("Where", within, best, 0.0), axes=[1], keepdims=1)
    return [
        g.op("Concat", rows, column, axis=1),
        set_rank(g, g.op("GatherND", labels, positions), 1),
        g.op("Concat", g.stack([batch]), longest, axis=0),
        g.op("Neg", total),
    ]

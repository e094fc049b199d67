"""Detection operators: proposals, transformed boxes, non-maximum suppression, levels of a feature pyramid.

Semantics: caffe2/operators/generate_proposals_op.cc, bbox_transform_op.cc, box_with_nms_limit_op.cc,
collect_and_distribute_fpn_rpn_proposals_op.cc and generate_proposals_op_util_boxes.h. Boxes are [x1, y1, x2,
y2]; with `legacy_plus_one`, x2 and y2 are the last pixels, so that a width is x2 - x1 + 1.
"""

import math
from collections.abc import Sequence

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import compute, where_true
from ..compositions.special.formulas import Formula
from ._layouts import set_shape

_MAXIMUM_LOG_SCALE = math.log(1000.0 / 16.0)
_LOWEST = -1e30
"""The score of boxes that are left out."""
_END = 2**63 - 1


def _columns(g: GraphContext, boxes: Value, axis: int) -> list[Formula]:
    """The four coordinates, or deltas, along an axis, which stays with the size 1."""
    return [
        Formula(g, g.op("Slice", boxes, starts=[index], ends=[index + 1], axes=[axis])) for index in range(4)
    ]


def _transform(
    boxes: Sequence[Formula], deltas: Sequence[Formula], weights: Sequence[float], plus_one: float
) -> list[Formula]:
    """Boxes moved and scaled by deltas."""
    corners: list[list[Formula]] = []
    for low, high, shift, scale, shift_weight, scale_weight in (
        (boxes[0], boxes[2], deltas[0], deltas[2], weights[0], weights[2]),
        (boxes[1], boxes[3], deltas[1], deltas[3], weights[1], weights[3]),
    ):
        length = high - low + plus_one
        centre = low + length * 0.5
        new_centre = shift / shift_weight * length + centre
        new_length = (scale / scale_weight).op("Min", _MAXIMUM_LOG_SCALE).exp() * length
        corners.append([new_centre - new_length * 0.5, new_centre + new_length * 0.5 - plus_one])
    return [corners[0][0], corners[1][0], corners[0][1], corners[1][1]]


def _clip(boxes: Sequence[Formula], height: Formula, width: Formula, plus_one: float) -> list[Formula]:
    """Boxes clipped to an image."""
    limits = [width - plus_one, height - plus_one] * 2
    return [box.op("Min", limit).op("Max", 0.0) for box, limit in zip(boxes, limits, strict=True)]


def _check_boxes(g: GraphContext, rotated: int, correct_transform_coords: int | None = None) -> None:
    if rotated:
        raise g.refuse("rotated boxes are not supported")
    if correct_transform_coords == 0:
        raise g.refuse("correct_transform_coords of 0 is not supported")


def _scalar(g: GraphContext, matrix: Value, index: int, rank: int) -> Formula:
    """A column of im_info, [images], with dimensions of size 1 behind."""
    column = set_shape(g.op("Gather", matrix, index, axis=1), [None])
    return Formula(g, g.op("Unsqueeze", column, axes=list(range(1, rank))))


@onnx_symbolic("caffe2::GenerateProposals")
def generate_proposals(
    g: GraphContext,
    scores: Value,
    bbox_deltas: Value,
    im_info: Value,
    anchors: Value,
    spatial_scale: float = 1.0 / 16,
    pre_nms_topN: int = 6000,
    post_nms_topN: int = 300,
    nms_thresh: float = 0.7,
    min_size: float = 16.0,
    correct_transform_coords: int | None = None,
    legacy_plus_one: int = 1,
    angle_bound_on: int = 1,
    angle_bound_lo: int = -90,
    angle_bound_hi: int = 90,
    clip_angle_thresh: float = 1.0,
) -> list[Value]:
    """The best boxes of each image, [count, 5] with the number of the image first, and their scores."""
    _check_boxes(g, 0, correct_transform_coords)
    plus_one = float(bool(legacy_plus_one))
    images, rows, columns = (g.size(scores, axis) for axis in (0, 2, 3))
    # Positions are in the order of rows, columns, anchors.
    flat_scores = g.call(
        "aten::reshape", self=g.op("Transpose", scores, perm=[0, 2, 3, 1]), shape=[images, -1]
    )
    deltas = g.call(
        "aten::reshape", self=g.op("Transpose", bbox_deltas, perm=[0, 2, 3, 1]), shape=[images, -1, 4]
    )
    # The anchors of a cell are shifted by the distance of cells in the image.
    step = 1.0 / spatial_scale
    shifts = [
        g.op("Mul", g.cast(g.constant(g.call("sym::range", start=0, end=size)), DataType.FLOAT), step)
        for size in (rows, columns)
    ]
    below, right = (
        g.op("Unsqueeze", shift, axes=[axis for axis in range(4) if axis != dim])
        for dim, shift in enumerate(shifts)
    )
    grid = [
        (Formula(g, g.op("Unsqueeze", corner.value, axes=[0, 1])) + Formula(g, shift)).value
        for corner, shift in zip(_columns(g, anchors, 1), (right, below, right, below), strict=True)
    ]
    zeros = g.op("Mul", g.op("Add", g.op("Add", below, right), grid[0]), 0.0)
    all_anchors = g.op("Concat", *(g.op("Add", corner, zeros) for corner in grid), axis=3)
    all_anchors = g.call("aten::reshape", self=all_anchors, shape=[1, -1, 4])
    # Only the best boxes are decoded; they come sorted.
    total = g.size(flat_scores, 1)
    count = total if pre_nms_topN <= 0 else compute(g, "min", total, pre_nms_topN)
    best, order = g.op("TopK", flat_scores, g.stack([count]), axis=1, outputs=2)
    wide_order = g.op("Expand", g.op("Unsqueeze", order, axes=[2]), g.stack([images, count, 4]))
    same_anchors = g.op("Expand", all_anchors, g.stack([images, total, 4]))
    best_anchors, best_deltas = (
        _columns(g, g.op("GatherElements", value, wide_order, axis=1), 2) for value in (same_anchors, deltas)
    )
    height, width, scale = (_scalar(g, im_info, index, 3) for index in range(3))
    boxes = _clip(_transform(best_anchors, best_deltas, [1.0] * 4, plus_one), height, width, plus_one)
    is_large = _is_large(boxes, height, width, scale * min_size, plus_one)
    selected = _suppress(
        g,
        boxes,
        is_large.chosen(Formula(g, g.op("Unsqueeze", best, axes=[2])), _LOWEST).value,
        post_nms_topN,
        nms_thresh,
        _LOWEST / 2,
        plus_one,
    )
    image_of_box = g.op("Slice", selected, starts=[0], ends=[1], axes=[1])
    flat = g.op(
        "Add", g.op("Mul", image_of_box, g.constant(count, DataType.INT64)), _box_numbers(g, selected)
    )
    flat = set_shape(g.op("Reshape", flat, [-1]), [None])
    all_boxes = g.op("Reshape", g.op("Concat", *(corner.value for corner in boxes), axis=2), [-1, 4])
    rois = g.op(
        "Concat", g.cast(image_of_box, DataType.FLOAT), g.op("Gather", all_boxes, flat, axis=0), axis=1
    )
    return [rois, g.op("Gather", g.op("Reshape", best, [-1]), flat, axis=0)]


def _is_large(
    boxes: Sequence[Formula], height: Formula, width: Formula, least: Formula, plus_one: float
) -> Formula:
    """Whether boxes have at least a size, and their centres in the image."""
    is_large: Formula | None = None
    for low, high, limit in ((boxes[0], boxes[2], width), (boxes[1], boxes[3], height)):
        length = high - low + plus_one
        fits = (length >= least) & (low + length * 0.5 < limit)
        is_large = fits if is_large is None else is_large & fits
    assert is_large is not None
    return is_large


def _suppress(
    g: GraphContext,
    boxes: Sequence[Formula],
    scores: Value,
    most: int,
    threshold: float,
    least_score: float,
    plus_one: float,
) -> Value:
    """Non-maximum suppression of boxes and scores [batch, count, 1]; rows of batch, 0 and box."""
    # The operator measures widths as x2 - x1.
    ends = [boxes[0], boxes[1], boxes[2] + plus_one, boxes[3] + plus_one]
    selected = g.op(
        "NonMaxSuppression",
        g.op("Concat", *(corner.value for corner in ends), axis=2),
        g.op("Transpose", scores, perm=[0, 2, 1]),
        g.constant([most if most > 0 else 2**31 - 1]),
        g.constant([threshold], DataType.FLOAT),
        g.constant([least_score], DataType.FLOAT),
    )
    return set_shape(selected, [None, 3])


def _box_numbers(g: GraphContext, selected: Value) -> Value:
    return g.op("Slice", selected, starts=[2], ends=[3], axes=[1])


@onnx_symbolic("caffe2::BBoxTransform")
def bbox_transform(
    g: GraphContext,
    rois: Value,
    deltas: Value,
    im_info: Value,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    apply_scale: int = 1,
    correct_transform_coords: int | None = None,
    rotated: int = 0,
    angle_bound_on: int = 1,
    angle_bound_lo: int = -90,
    angle_bound_hi: int = 90,
    clip_angle_thresh: float = 1.0,
    legacy_plus_one: int = 1,
) -> list[Value]:
    """Boxes for each class, [count, 4 * classes], and the number of boxes of each image."""
    _check_boxes(g, rotated, correct_transform_coords)
    shape = g.shape(rois)
    width_of_rois = shape[1] if shape is not None and len(shape) == 2 else None
    if width_of_rois not in (4, 5):
        raise g.refuse("the number of columns of rois, 4 or 5, is unknown: pass the shape of rois")
    plus_one = float(bool(legacy_plus_one))
    images, count = g.size(im_info, 0), g.size(rois, 0)
    if width_of_rois == 5:
        image = g.cast(g.op("Gather", rois, 0, axis=1), DataType.INT64)
    else:
        image = g.call("composed::full", size=[count], fill_value=0, dtype=DataType.INT64)
    image = set_shape(image, [None])
    boxes = g.op("Slice", rois, starts=[width_of_rois - 4], ends=[_END], axes=[1])
    sizes = g.op("Gather", im_info, image, axis=0)
    height, width, scale = (_scalar(g, sizes, index, 3) for index in range(3))
    scaled = [corner / scale for corner in _columns(g, g.op("Unsqueeze", boxes, axes=[1]), 2)]
    by_class = _columns(g, g.call("aten::reshape", self=deltas, shape=[count, -1, 4]), 2)
    # Caffe2 rounds the sizes of the image before it was scaled.
    height, width = ((size / scale + 0.5).floor() for size in (height, width))
    moved = _clip(_transform(scaled, by_class, list(weights), plus_one), height, width, plus_one)
    if apply_scale:
        moved = [corner * scale for corner in moved]
    result = g.op("Concat", *(corner.value for corner in moved), axis=2)
    zeros = g.call("composed::full", size=[images], fill_value=0.0, dtype=DataType.FLOAT)
    units = g.call("composed::full", size=[count], fill_value=1.0, dtype=DataType.FLOAT)
    splits = g.call("composed::accumulate_rows", zeros, image, units)
    return [g.call("aten::reshape", self=result, shape=[count, -1]), splits][: len(g.expected)]


@onnx_symbolic("caffe2::BoxWithNMSLimit")
def box_with_nms_limit(
    g: GraphContext,
    scores: Value,
    boxes: Value,
    batch_splits: Value | None = None,
    score_thresh: float = 0.05,
    nms: float = 0.3,
    detections_per_im: int = 100,
    soft_nms_enabled: int = 0,
    soft_nms_method: str = "linear",
    soft_nms_sigma: float = 0.5,
    soft_nms_min_score_thres: float = 0.001,
    rotated: int = 0,
    cls_agnostic_bbox_reg: int = 0,
    input_boxes_include_bg_cls: int = 1,
    output_classes_include_bg_cls: int = 1,
    legacy_plus_one: int = 1,
) -> list[Value]:
    """Scores, boxes and classes of the detections of one image, their number, and their positions."""
    _check_boxes(g, rotated)
    if soft_nms_enabled:
        raise g.refuse("soft non-maximum suppression is not supported")
    if batch_splits is not None and g.size(batch_splits, 0) != 1:
        raise g.refuse(
            "several images, or an unknown number, are not supported: give batch_splits the shape [1]"
        )
    plus_one = float(bool(legacy_plus_one))
    # The first class is the background, whose boxes may be left out.
    classes = g.op("Slice", scores, starts=[1 if input_boxes_include_bg_cls else 0], ends=[_END], axes=[1])
    by_class = g.op("Unsqueeze", g.op("Transpose", classes, perm=[1, 0]), axes=[2])
    class_count, count = g.size(classes, 1), g.size(scores, 0)
    parts = g.op("Transpose", g.call("aten::reshape", self=boxes, shape=[count, -1, 4]), perm=[1, 0, 2])
    if cls_agnostic_bbox_reg:
        # All classes share the boxes that follow those of the background.
        first = g.op("Slice", parts, starts=[-1], ends=[_END], axes=[0])
        parts = g.op("Expand", first, g.stack([class_count, count, 4]))
    elif input_boxes_include_bg_cls:
        parts = g.op("Slice", parts, starts=[1], ends=[_END], axes=[0])
    selected = _suppress(g, _columns(g, parts, 2), by_class, 0, nms, score_thresh, plus_one)
    class_numbers = g.op("Slice", selected, starts=[0], ends=[1], axes=[1])
    numbers = _box_numbers(g, selected)
    # Classes are the batches of NonMaxSuppression: it returns the class and the box of each detection.
    flat = g.op("Add", g.op("Mul", class_numbers, g.constant(count, DataType.INT64)), numbers)
    flat = set_shape(g.op("Reshape", flat, [-1]), [None])
    found_scores = g.op("Gather", g.op("Reshape", by_class, [-1]), flat, axis=0)
    if detections_per_im > 0:
        limit = compute(g, "min", g.size(flat, 0), detections_per_im)
        _, best = g.op("TopK", found_scores, g.stack([limit]), axis=0, outputs=2)
        # The detections stay in the order of classes.
        places, _ = g.call_outputs("aten::sort", set_shape(best, [None]), 0)
        flat, found_scores, class_numbers, numbers = (
            g.op("Gather", value, places, axis=0) for value in (flat, found_scores, class_numbers, numbers)
        )
    found_boxes = g.op("Gather", g.op("Reshape", parts, [-1, 4]), flat, axis=0)
    offset = 1 if output_classes_include_bg_cls else 0
    found_classes = g.op("Reshape", g.op("Add", class_numbers, offset), [-1])
    total = g.stack([g.size(flat, 0)])
    keeps = g.cast(g.op("Reshape", numbers, [-1]), DataType.INT32)
    # The positions are listed class by class, and their numbers include the background.
    class_total = compute(g, "add", class_count, offset)
    zeros = g.call("composed::full", size=[class_total], fill_value=0, dtype=DataType.INT64)
    units = g.call("aten::ones_like", found_classes)
    sizes = g.call("composed::accumulate_rows", zeros, set_shape(found_classes, [None]), units)
    results = [
        set_shape(found_scores, [None]),
        set_shape(found_boxes, [None, 4]),
        g.cast(found_classes, DataType.FLOAT),
        g.cast(total, g.dtype(batch_splits) or DataType.FLOAT) if batch_splits is not None else total,
        keeps,
        g.cast(sizes, DataType.INT32),
    ]
    # The last results are optional.
    return results[: len(g.expected)]


@onnx_symbolic("caffe2::CollectAndDistributeFpnRpnProposals")
def collect_and_distribute_fpn_rpn_proposals(
    g: GraphContext,
    inputs: list[Value],
    roi_canonical_scale: int = 224,
    roi_canonical_level: int = 4,
    roi_max_level: int = 5,
    roi_min_level: int = 2,
    rpn_max_level: int = 6,
    rpn_min_level: int = 2,
    rpn_post_nms_topN: int = 2000,
    legacy_plus_one: int = 1,
) -> list[Value]:
    """The best proposals of all levels; the proposals of each level by their size; and their order."""
    levels = rpn_max_level - rpn_min_level + 1
    if len(inputs) != 2 * levels:
        raise g.refuse(f"it has {len(inputs)} inputs, and {2 * levels} by its levels")
    rois = g.op("Concat", *inputs[:levels], axis=0)
    flat_scores = [g.op("Reshape", part, [-1]) for part in inputs[levels:]]
    scores = set_shape(g.op("Concat", *flat_scores, axis=0), [None])
    count = compute(g, "min", g.size(scores, 0), rpn_post_nms_topN)
    _, order = g.op("TopK", scores, g.stack([count]), axis=0, outputs=2)
    best = g.op("Gather", rois, order, axis=0)
    plus_one = float(bool(legacy_plus_one))
    x1, y1, x2, y2 = _columns(g, g.op("Slice", best, starts=[1], ends=[5], axes=[1]), 1)
    size = ((x2 - x1 + plus_one) * (y2 - y1 + plus_one)).sqrt()
    # A proposal belongs to the level whose cells have about its size.
    exponent = (size / float(roi_canonical_scale) + 1e-6).log() * (1.0 / math.log(2.0))
    level = (exponent + float(roi_canonical_level)).floor()
    level = level.op("Min", float(roi_max_level)).op("Max", float(roi_min_level))
    vector = g.op("Reshape", level.value, [-1])
    parts: list[Value] = []
    positions: list[Value] = []
    for number in range(roi_min_level, roi_max_level + 1):
        matches = g.op("Equal", g.cast(vector, DataType.INT64), number)
        positions.append(where_true(g, g.cast(matches, DataType.INT64)))
        parts.append(set_shape(g.op("Gather", best, positions[-1], axis=0), [None, 5]))
    joined = set_shape(g.op("Concat", *positions, axis=0), [None])
    # The inverse of the order in which the levels list the proposals.
    _, restored = g.call_outputs("aten::sort", joined, 0)
    return [best, *parts, g.cast(restored, DataType.INT32)]

"""Caffe2's detection operators in numpy, with the loops of its CPU kernels; boxes with the last pixel."""

from __future__ import annotations

import math

import numpy as np

Detections = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def transform(box: np.ndarray, delta: np.ndarray, weights: tuple[float, ...]) -> list[float]:
    """A box moved and scaled."""
    x1, y1, x2, y2 = map(float, box)
    width, height = x2 - x1 + 1, y2 - y1 + 1
    dx, dy, dw, dh = (float(d) / w for d, w in zip(delta, weights, strict=True))
    limit = math.log(1000 / 16)
    x, y = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
    width, height = math.exp(min(dw, limit)) * width, math.exp(min(dh, limit)) * height
    return [x - width / 2, y - height / 2, x + width / 2 - 1, y + height / 2 - 1]


def clip(box: list[float], height: float, width: float) -> list[float]:
    """A box within an image."""
    limits = (width - 1, height - 1) * 2
    return [max(min(corner, limit), 0) for corner, limit in zip(box, limits, strict=True)]


def suppress(boxes: list[list[float]], order: list[int], threshold: float) -> list[int]:
    """The boxes that overlap no better one by more than the threshold."""
    chosen: list[int] = []
    for index in order:
        if all(_overlap(boxes[index], boxes[better]) <= threshold for better in chosen):
            chosen.append(index)
    return chosen


def _overlap(a: list[float], b: list[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    common = max(width, 0) * max(height, 0)
    areas = sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b))
    return common / (areas - common)


def generate_proposals(
    scores: np.ndarray,
    deltas: np.ndarray,
    im_info: np.ndarray,
    anchors: np.ndarray,
    spatial_scale: float,
    before: int,
    after: int,
    threshold: float,
    min_size: float,
) -> list[np.ndarray]:
    """Proposals and their scores."""
    rois, probabilities = [], []
    images, count, rows, columns = scores.shape
    for image in range(images):
        candidates = []
        for row in range(rows):
            for column in range(columns):
                for a in range(count):
                    shift = np.array([column, row, column, row]) / spatial_scale
                    delta = deltas[image, 4 * a : 4 * a + 4, row, column]
                    candidates.append((float(scores[image, a, row, column]), anchors[a] + shift, delta))
        candidates.sort(key=lambda item: -item[0])
        height, width, scale = map(float, im_info[image])
        boxes, values = [], []
        for score, anchor, delta in candidates[:before]:
            box = clip(transform(anchor, delta, (1, 1, 1, 1)), height, width)
            w, h = box[2] - box[0] + 1, box[3] - box[1] + 1
            inside = box[0] + w / 2 < width and box[1] + h / 2 < height
            if w >= min_size * scale and h >= min_size * scale and inside:
                boxes.append(box)
                values.append(score)
        for index in suppress(boxes, list(range(len(boxes))), threshold)[:after]:
            rois.append([image, *boxes[index]])
            probabilities.append(values[index])
    return [np.array(rois, np.float32).reshape(-1, 5), np.array(probabilities, np.float32)]


def bbox_transform(
    rois: np.ndarray, deltas: np.ndarray, im_info: np.ndarray, weights: tuple[float, ...], apply_scale: bool
) -> list[np.ndarray]:
    """Boxes for each class, and their number for each image."""
    result, counts = [], np.zeros(len(im_info), np.float32)
    for roi, delta in zip(rois, deltas, strict=True):
        image = int(roi[0]) if len(roi) == 5 else 0
        counts[image] += 1
        height, width, scale = map(float, im_info[image])
        size = int(height / scale + 0.5), int(width / scale + 0.5)
        row: list[float] = []
        for part in delta.reshape(-1, 4):
            box = clip(transform(roi[-4:] / scale, part, weights), *size)
            row += [corner * scale if apply_scale else corner for corner in box]
        result.append(row)
    return [np.array(result, np.float32), counts]


def box_with_nms_limit(
    scores: np.ndarray, boxes: np.ndarray, least: float, threshold: float, most: int
) -> list[np.ndarray]:
    """Detections class by class, the background first, without detections."""
    detections: list[tuple[float, int, int]] = []
    for number in range(1, scores.shape[1]):
        parts = boxes[:, 4 * number : 4 * number + 4].tolist()
        order = [i for i in np.argsort(-scores[:, number], kind="stable") if scores[i, number] > least]
        detections += [(float(scores[i, number]), number, int(i)) for i in suppress(parts, order, threshold)]
    limit = sorted(detections, key=lambda item: -item[0])[:most]
    detections = [item for item in detections if item in limit]
    sizes = np.bincount([number for _, number, _ in detections], minlength=scores.shape[1])
    return [
        np.float32([score for score, _, _ in detections]),
        np.float32([boxes[i, 4 * number : 4 * number + 4] for _, number, i in detections]),
        np.float32([number for _, number, _ in detections]),
        np.float32([len(detections)]),
        np.int32([i for _, _, i in detections]),
        sizes.astype(np.int32),
    ]


def collect_and_distribute(
    rois: list[np.ndarray], scores: list[np.ndarray], most: int, low: int, high: int
) -> list[np.ndarray]:
    """The best proposals, those of each level, and their order."""
    order = np.argsort(-np.concatenate(scores), kind="stable")[:most]
    best = np.concatenate(rois)[order]
    levels = []
    for _, x1, y1, x2, y2 in best.tolist():
        size = math.sqrt((x2 - x1 + 1) * (y2 - y1 + 1))
        levels.append(min(max(math.floor(4 + math.log2(size / 224 + 1e-6)), low), high))
    listed = [i for level in range(low, high + 1) for i, own in enumerate(levels) if own == level]
    parts = [best[[own == level for own in levels]] for level in range(low, high + 1)]
    return [best, *parts, np.argsort(listed).astype(np.int32)]

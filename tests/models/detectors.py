"""Small detectors in the form of torchvision's, for tests without torchvision.

`roi_heads` has the functions that a capture replaces by name, with torchvision's loops over detections.
"""

from __future__ import annotations

import math
import types

import torch
from torch import nn
from torch.nn import functional

from ..torchvision_operators import define_operators

define_operators()
roi_heads = types.ModuleType("torchvision.models.detection.roi_heads")
"""torchvision/models/detection/roi_heads.py, which computes masks and keypoints for one box after another."""
boxes_module = types.ModuleType("torchvision.ops.boxes")
"""torchvision/ops/boxes.py, with two ways of suppression by class."""

exec(
    """
import torch
from torch.nn import functional

def expand_masks(mask, padding):
    size = mask.shape[-1]
    return functional.pad(mask, (padding,) * 4), float(size + 2 * padding) / size

def expand_boxes(boxes, scale):
    halves, centres = (boxes[:, 2:] - boxes[:, :2]) * 0.5, (boxes[:, 2:] + boxes[:, :2]) * 0.5
    expanded = torch.zeros_like(boxes)
    expanded[:, :2] = centres - halves * scale
    expanded[:, 2:] = centres + halves * scale
    return expanded

def paste_masks_in_image(masks, boxes, img_shape, padding=1):
    masks, scale = expand_masks(masks, padding=padding)
    boxes = expand_boxes(boxes, scale).to(torch.int64)
    height, width = img_shape
    result = masks.new_zeros((len(masks), 1, height, width))
    for row, (mask, (x1, y1, x2, y2)) in enumerate(zip(masks, boxes.tolist())):
        size = (max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1))
        mask = functional.interpolate(mask[None], size=size, mode="bilinear", align_corners=False)[0, 0]
        left, right, top, bottom = max(x1, 0), min(x2 + 1, width), max(y1, 0), min(y2 + 1, height)
        result[row, 0, top:bottom, left:right] = mask[top - y1 : bottom - y1, left - x1 : right - x1]
    return result

def heatmaps_to_keypoints(maps, rois):
    lengths = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    points = torch.zeros((len(rois), 3, maps.shape[1]))
    scores = torch.zeros((len(rois), maps.shape[1]))
    for row in range(len(rois)):
        width, height = lengths[row].ceil().int().tolist()
        resized = functional.interpolate(maps[row][:, None], size=(height, width), mode="bicubic")[:, 0]
        position = resized.flatten(1).argmax(1)
        points[row, 0] = (position % width + 0.5) * (lengths[row, 0] / width) + rois[row, 0]
        points[row, 1] = (position // width + 0.5) * (lengths[row, 1] / height) + rois[row, 1]
        points[row, 2] = 1
        scores[row] = resized.flatten(1).max(1).values
    return points.permute(0, 2, 1), scores
""",
    vars(roi_heads),
)
exec(
    """
import torch

def batched_nms(boxes, scores, idxs, iou_threshold):
    if boxes.numel() > 4000:
        return _batched_nms_vanilla(boxes, scores, idxs, iou_threshold)
    return _batched_nms_coordinate_trick(boxes, scores, idxs, iou_threshold)

def _batched_nms_coordinate_trick(boxes, scores, idxs, iou_threshold):
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64, device=boxes.device)
    offsets = idxs.to(boxes) * (boxes.max() + torch.tensor(1).to(boxes))
    return torch.ops.torchvision.nms(boxes + offsets[:, None], scores, iou_threshold)

def _batched_nms_vanilla(boxes, scores, idxs, iou_threshold):
    keep = torch.zeros_like(scores, dtype=torch.bool)
    for number in torch.unique(idxs):
        of_class = torch.where(idxs == number)[0]
        keep[of_class[torch.ops.torchvision.nms(boxes[of_class], scores[of_class], iou_threshold)]] = True
    keep = torch.where(keep)[0]
    return keep[scores[keep].sort(descending=True)[1]]
""",
    vars(boxes_module),
)


def resize(image: torch.Tensor, least: int, most: int, divisor: int) -> tuple[torch.Tensor, torch.Size]:
    """An image within some sizes, with zeros up to a multiple; `GeneralizedRCNNTransform` of torchvision."""
    shape = image.shape[-2:]
    scale = min(least / min(shape), most / max(shape))
    image = functional.interpolate(
        image[None], scale_factor=scale, mode="bilinear", recompute_scale_factor=True, align_corners=False
    )[0]
    size, stride = list(image.shape), float(divisor)
    size[1] = int(math.ceil(float(size[1]) / stride) * stride)
    size[2] = int(math.ceil(float(size[2]) / stride) * stride)
    batch = image.new_full([1, *size], 0)
    batch[0, : image.shape[0], : image.shape[1], : image.shape[2]].copy_(image)
    return batch, image.shape[-2:]


class Backbone(nn.Module):
    """Feature maps of two levels."""

    def __init__(self, channels: int):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 5, 4, 2)
        self.second = nn.Conv2d(channels, channels, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        first = self.first(x).relu()
        return [first, self.second(first).relu()]


def decode(features: torch.Tensor, deltas: torch.Tensor, stride: int) -> torch.Tensor:
    """Boxes `[pixels, 4]` around the centres of pixels, from `[1, 4, height, width]`."""
    height, width = features.shape[-2:]
    ys, xs = torch.meshgrid(torch.arange(height) * stride, torch.arange(width) * stride, indexing="ij")
    centres = torch.stack((xs, ys, xs, ys), dim=-1).reshape(-1, 4) + stride / 2
    sides = deltas[0].permute(1, 2, 0).reshape(-1, 4).exp() * stride * torch.tensor([-1.0, -1, 1, 1])
    return centres + sides


class OneStage(nn.Module):
    """Like RetinaNet: the best boxes of each level above a threshold."""

    def __init__(self, threshold: float):
        super().__init__()
        self.threshold = threshold
        self.backbone = Backbone(8)
        self.scores, self.deltas = nn.Conv2d(8, 3, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        shape = image.shape[-2:]
        boxes, scores, labels = [], [], []
        for level, features in enumerate(self.backbone(image[None])):
            chances = self.scores(features)[0].permute(1, 2, 0).sigmoid().flatten()
            keep = chances > self.threshold
            chances, candidates = chances[keep], torch.where(keep)[0]
            count = min(12, candidates.size(0))
            chances, order = chances.topk(count)
            candidates = candidates[order]
            pixels = torch.div(candidates, 3, rounding_mode="floor")
            level_boxes = decode(features, self.deltas(features), 4 * 2**level)[pixels]
            level_boxes = level_boxes.clamp(min=0)
            boxes.append(torch.min(level_boxes, torch.tensor([shape[1], shape[0]] * 2).to(level_boxes)))
            scores.append(chances)
            labels.append(candidates % 3)
        all_boxes, all_scores, all_labels = torch.cat(boxes), torch.cat(scores), torch.cat(labels)
        keep = boxes_module.batched_nms(all_boxes, all_scores, all_labels, 0.5)[:6]
        return {"boxes": all_boxes[keep], "scores": all_scores[keep], "labels": all_labels[keep]}


class TwoStages(nn.Module):
    """Like Mask R-CNN and Keypoint R-CNN: heads on the regions of the first stage's boxes."""

    def __init__(self, threshold: float):
        super().__init__()
        self.first = OneStage(threshold)
        self.mask_head = nn.Sequential(
            nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, 2)
        )
        self.point_head = nn.Conv2d(8, 2, 3, padding=1)

    def pool(self, features: list[torch.Tensor], boxes: torch.Tensor) -> torch.Tensor:
        """Regions of the level that suits their size, `[boxes, 8, 4, 4]`."""
        levels = ((boxes[:, 2] - boxes[:, 0]) > 12).to(torch.int64)
        rois = torch.cat([torch.full_like(boxes[:, :1], 0), boxes], dim=1)
        result = torch.zeros((len(rois), 8, 4, 4))
        for level, level_features in enumerate(features):
            of_level = torch.where(levels == level)[0]
            scale = 0.25 / 2**level
            result[of_level] = torch.ops.torchvision.roi_align(
                level_features, rois[of_level], scale, 4, 4, 2, False
            )
        return result

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.first(image)
        features = self.first.backbone(image[None])
        regions = self.pool(features, found["boxes"])
        masks = self.mask_head(regions).sigmoid()
        points, scores = roi_heads.heatmaps_to_keypoints(self.point_head(regions), found["boxes"])
        pasted = roi_heads.paste_masks_in_image(masks, found["boxes"], image.shape[-2:])
        return {**found, "masks": pasted, "points": points, "point_scores": scores}

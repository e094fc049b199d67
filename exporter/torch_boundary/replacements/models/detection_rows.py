"""Replaces torchvision's loops over detections by operators for any number of detections.

Mask R-CNN and Keypoint R-CNN resize the mask or the heatmaps of each detection to the size of its box in a
Python loop, which a capture cannot record for an unknown number of boxes. The functions here compute the same
for all rows at once.

Semantics: torchvision/models/detection/roi_heads.py, `paste_masks_in_image` and `heatmaps_to_keypoints`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ...process.process_state import replace_attribute

_ROI_HEADS = "torchvision.models.detection.roi_heads"
_IMPORTING = (_ROI_HEADS, "torchvision.models.detection.transform")
"""The modules that define or import the replaced functions."""
_LIBRARY = torch.library.Library("opsetta", "FRAGMENT")
_LIBRARY.define("heatmap_maxima(Tensor maps, Tensor sizes) -> (Tensor scores, Tensor positions)")


def _heatmap_maxima(maps: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the largest value of each heatmap after bicubic resizing, and its position.

    Args:
        maps: `[rows, channels, height, width]`.
        sizes: the height and width to which the maps of each row are resized, INT64 `[rows, 2]`.

    Returns:
        Two tensors `[rows, channels]`; positions are INT64, counted along the rows of the resized map.
    """
    scores, positions = _shapes_of_maxima(maps, sizes)
    for row, (row_maps, size) in enumerate(zip(maps, sizes.tolist(), strict=True)):
        resized = torch.nn.functional.interpolate(row_maps[:, None], size=size, mode="bicubic")
        scores[row], positions[row] = resized.flatten(1).max(dim=1)
    return scores, positions


def _shapes_of_maxima(maps: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    shape = maps.shape[:2]
    return maps.new_empty(shape), maps.new_empty(shape, dtype=torch.int64)


_LIBRARY.impl("heatmap_maxima", _heatmap_maxima, "CompositeExplicitAutograd")
torch.library.register_fake("opsetta::heatmap_maxima", _shapes_of_maxima, lib=_LIBRARY)


def _paste_masks(
    masks: torch.Tensor, boxes: torch.Tensor, img_shape: tuple[int, int], padding: int = 1
) -> torch.Tensor:
    """Paste masks `[rows, 1, size, size]` into boxes `[rows, 4]` of an image.

    Bilinear interpolation is a product with a matrix of weights for each axis. Returns
    `[rows, 1, height, width]`.
    """
    roi_heads: Any = sys.modules[_ROI_HEADS]
    padded, scale = roi_heads.expand_masks(masks, padding=padding)
    boxes = roi_heads.expand_boxes(boxes, scale).to(torch.int64)
    rows, columns = (
        _weights(boxes[:, axis], boxes[:, axis + 2], img_shape[1 - axis], padded) for axis in (1, 0)
    )
    pasted: torch.Tensor = rows @ padded[:, 0] @ columns.transpose(1, 2)
    return pasted[:, None]


def _weights(begin: torch.Tensor, last: torch.Tensor, size: int, masks: torch.Tensor) -> torch.Tensor:
    """Return how much each mask pixel adds to each image pixel along one axis, `[rows, size, pixels]`.

    Args:
        begin, last: the first and last pixel of each box in the image, INT64 `[rows]`.
        size: the size of the image along this axis.
        masks: `[rows, 1, pixels, pixels]`.
    """
    pixels = masks.shape[-1]
    position = torch.arange(size, device=masks.device)[None] - begin[:, None]
    length = (last - begin + 1)[:, None]
    in_mask = (position.to(masks.dtype) + 0.5) * (pixels / length.clamp(min=1).to(masks.dtype)) - 0.5
    distance = in_mask.clamp(0, pixels - 1)[..., None] - torch.arange(pixels, device=masks.device)
    is_inside = (position >= 0) & (position < length)
    return (1 - distance.abs()).clamp(min=0) * is_inside[..., None].to(masks.dtype)


def _keypoints(maps: torch.Tensor, rois: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the keypoints in boxes `rois`, `[rows, 4]`.

    Returns:
        The points `(x, y, 1)`, `[rows, keypoints, 3]`, and their scores, `[rows, keypoints]`.
    """
    lengths = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    rounded = lengths.ceil()
    sizes = rounded.to(torch.int64)
    scores, positions = torch.ops.opsetta.heatmap_maxima(maps, sizes.flip(1))
    width = sizes[:, :1]
    x = positions % width
    y = torch.div(positions - x, width, rounding_mode="floor")
    # A pixel is a square of the map, and a keypoint is its centre.
    centres = torch.stack((x, y), dim=2).to(torch.float32) + 0.5
    points = centres * (lengths / rounded)[:, None] + rois[:, None, :2]
    return torch.cat((points, torch.ones_like(points[:, :, :1])), dim=2), scores.to(torch.float32)


_FUNCTIONS = {"paste_masks_in_image": _paste_masks, "heatmaps_to_keypoints": _keypoints}


@contextlib.contextmanager
def detect_by_rows() -> Iterator[None]:
    """Replace torchvision's functions within the context, if torchvision is imported."""
    with contextlib.ExitStack() as stack:
        # The classes import the functions by name, so each module has its own reference.
        for module in filter(None, map(sys.modules.get, _IMPORTING)):
            for name, function in _FUNCTIONS.items():
                # A function that the user has replaced stays.
                if getattr(vars(module).get(name), "__module__", "") == _ROI_HEADS:
                    stack.enter_context(replace_attribute(module, name, function))
        yield

"""Compares exports of torchvision's detectors with PyTorch on images of three sizes, one without detections.

A detector is captured once, from a random example, and lowered to each opset. The limit is a relative
difference of 1e-3, or twice that of PyTorch in float32 from PyTorch in float64, where that is larger.

    python -m tests.vision [--opsets 11,13,17,18] [NAME ...]

The exit code is 1 if a detector fails or differs.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchvision.models import detection

import opsetta

_SMALL = {"min_size": 96, "max_size": 160, "weights": None, "weights_backbone": None}
_FIXED = {"weights": None, "weights_backbone": None}
_BOXES = {"topk_candidates": 50, "detections_per_img": 10}
_REGIONS = {
    "box_detections_per_img": 10,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 20,
}
DETECTORS: dict[str, Callable[[], Any]] = {
    "ssdlite": lambda: detection.ssdlite320_mobilenet_v3_large(**_FIXED, **_BOXES),
    "ssd": lambda: detection.ssd300_vgg16(**_FIXED, **_BOXES),
    "retinanet": lambda: detection.retinanet_resnet50_fpn(**_SMALL, **_BOXES),
    "fcos": lambda: detection.fcos_resnet50_fpn(**_SMALL, **_BOXES),
    "faster_rcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(**_SMALL, **_REGIONS),
    "mask_rcnn": lambda: detection.maskrcnn_resnet50_fpn(**_SMALL, **_REGIONS),
    "keypoint_rcnn": lambda: detection.keypointrcnn_resnet50_fpn(**_SMALL, **_REGIONS),
}
_LARGEST_LIMIT = 1e-2
"""The largest allowed difference: rounding that changes more than this hides errors of the export."""
_SIZES = ((100, 130), (120, 90), (77, 201))


def _image(height: int, width: int) -> torch.Tensor:
    """A random image that is smooth, like a photograph.

    onnxruntime rounds the coordinates of resized pixels, which changes noise by 3e-5, and detections by 1e-3.
    """
    coarse = torch.rand(1, 3, height // 10, width // 10)
    return torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic")[0]


def _fit_normalization(model: Any) -> None:
    """Set the statistics of batch normalization to those of images, so that scores depend on the image."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.train()
        # The last batch replaces the statistics.
        layer.momentum = 1.0
    if layers:
        model([_image(*size) for size in _SIZES])
        model.eval()


def _images(model: Any) -> list[torch.Tensor]:
    """Images of three sizes; the model's threshold lies above all scores of one of them."""
    images = [_image(*size) * (1 + number) / 3 for number, size in enumerate(_SIZES)]
    holder = getattr(model, "roi_heads", model)
    holder.score_thresh = 0.0
    best = sorted(float(model([image])[0]["scores"].max()) for image in images)
    holder.score_thresh = (best[0] + best[1]) / 2
    return images


def _largest_difference(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of two detections, relative to numbers above 1; infinite for other shapes."""
    largest = 0.0
    for name, tensor in expected.items():
        if actual[name].shape != tensor.shape:
            return float("inf")
        if tensor.numel():
            difference = (actual[name].double() - tensor.double()).abs() / tensor.double().abs().clamp(min=1)
            largest = max(largest, float(difference.max()))
    return largest


def _rounding(
    model: Any, images: Sequence[torch.Tensor], expected: Sequence[dict[str, torch.Tensor]]
) -> float:
    """How much PyTorch's own detections in float32 differ from those in float64.

    Random weights amplify rounding errors, most of all in boxes, whose size is an exponential function.
    """
    exact = copy.deepcopy(model).double()
    return max(
        _largest_difference(detections, exact([image.double()])[0])
        for image, detections in zip(images, expected, strict=True)
    )


@torch.no_grad()
def main(arguments: Sequence[str] | None = None) -> int:
    """Check the detectors; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.vision")
    parser.add_argument("names", nargs="*", choices=[[], *DETECTORS], default=[])
    parser.add_argument("--opsets", default="11,13,17,18")
    options = parser.parse_args(arguments)
    opsets = [int(opset) for opset in options.opsets.split(",")]
    failures = 0
    for name in options.names or DETECTORS:
        torch.manual_seed(0)
        model = DETECTORS[name]().eval()
        _fit_normalization(model)
        images = _images(model)
        expected = [model([image])[0] for image in images]
        rounding = _rounding(model, images, expected)
        limit = max(1e-3, 2 * rounding)
        counts = [len(detections["scores"]) for detections in expected]
        begin = time.process_time()
        try:
            program = opsetta.export(
                model,
                ([torch.rand(3, 96, 128)],),
                opset=opsets[0],
                dynamic_shapes=([{1: "height", 2: "width"}],),
                narrow=True,
            )
        except opsetta.OpsettaError as error:
            failures += 1
            print(f"{name}: {error}", flush=True)
            continue
        seconds = time.process_time() - begin
        print(f"{name}: {seconds:.0f} s, {counts} detections, rounding {rounding:.1e}", flush=True)
        for opset in opsets:
            try:
                lowered = program.lower(opset=opset)
                differences = [
                    _largest_difference(lowered([image])[0], detections)
                    for image, detections in zip(images, expected, strict=True)
                ]
            except opsetta.OpsettaError as error:
                failures += 1
                print(f"{name} at {opset}: {error}", flush=True)
                continue
            failures += not max(differences) <= limit <= _LARGEST_LIMIT
            print(f"{name} at {opset}: {max(differences):.1e}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

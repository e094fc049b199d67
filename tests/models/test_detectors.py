"""Detectors: images of any size, any number of detections, none included."""

from __future__ import annotations

import sys

import pytest
import torch

import opsetta

from .detectors import OneStage, TwoStages, boxes_module, resize, roi_heads

SIZES = ((40, 52), (61, 37), (33, 90))


@pytest.fixture(autouse=True)
def torchvision_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture finds torchvision's functions by the names of its modules."""
    for module in (boxes_module, roi_heads):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def _images(model: OneStage | TwoStages, first: OneStage) -> list[torch.Tensor]:
    """Images of three sizes; the threshold lies above all scores of one of them."""
    torch.manual_seed(3)
    images = [torch.rand(3, *size) * factor for size, factor in zip(SIZES, (4.0, 0.2, 3.0), strict=True)]
    first.threshold = 0.0
    best = sorted(float(model(image)["scores"].max()) for image in images)
    first.threshold = (best[0] + best[1]) / 2
    return images


@pytest.mark.parametrize(("model_class", "opset"), [(TwoStages, 13)])
@torch.no_grad()
def test_detectors_agree_with_eager(model_class: type, opset: int) -> None:
    torch.manual_seed(0)
    model = model_class(0.0).eval()
    images = _images(model, getattr(model, "first", model))
    before = {name: vars(roi_heads)[name] for name in ("paste_masks_in_image", "heatmaps_to_keypoints")}
    program = opsetta.export(
        model,
        (torch.rand(3, 48, 40),),
        opset=opset,
        dynamic_shapes=({1: "height", 2: "width"},),
        # torch's kernels assume that images have at least 9 pixels.
        narrow=True,
    )
    assert all(vars(roi_heads)[name] is function for name, function in before.items())
    counts = []
    for image in images:
        expected, actual = model(image), program(image)
        counts.append(len(expected["scores"]))
        assert actual.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(actual[name], tensor, atol=2e-4, rtol=1e-4)
    assert 0 in counts
    assert max(counts) > 1


def test_suppression_by_class_takes_more_boxes_than_the_example() -> None:
    class Suppressed(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
            rows = torch.where(chosen)[0]
            labels = rows % 3
            return boxes_module.batched_nms(boxes[rows], boxes[rows, 3], labels, 0.4)

    corners = torch.arange(2400.0).reshape(1200, 2) % 97
    boxes = torch.cat([corners, corners + 9 + corners.flip(1) / 10], 1)
    chosen = torch.arange(1200) < 5
    program = opsetta.export(
        Suppressed().eval(), (boxes, chosen), opset=13, dynamic_shapes=({0: "n"}, {0: "n"})
    )
    for least in (5, 1100, 0):
        chosen = torch.arange(1200) < least
        torch.testing.assert_close(
            program(boxes, chosen),
            boxes_module._batched_nms_coordinate_trick(
                boxes[chosen], boxes[chosen][:, 3], torch.where(chosen)[0] % 3, 0.4
            ),
        )


class Resized(torch.nn.Module):
    """The example's resized width is a multiple already."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return resize(image, 32, 56, 8)[0]


def test_images_are_resized_to_computed_sizes() -> None:
    program = opsetta.export(
        Resized().eval(), (torch.rand(3, 48, 40),), opset=13, dynamic_shapes=({1: "height", 2: "width"},)
    )
    for size in SIZES:
        image = torch.rand(3, *size)
        torch.testing.assert_close(program(image), Resized()(image), atol=1e-4, rtol=1e-4)

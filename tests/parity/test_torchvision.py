"""torchvision's operators against kernels of loops over numbers: regions, boxes, deformable windows."""

import pytest
import torch

import opsetta

from ..torchvision_operators import define_operators
from .records import HIGHEST, Record, check, floats, parametrized

define_operators()
vision = torch.ops.torchvision

IMAGES = floats(2, 8, 9, 11)
# Inside, beyond each edge, smaller than a pixel, outside, with halves.
REGIONS = torch.tensor(
    [
        [0, 0.0, 0, 8, 7],
        [1, 2, 1, 9, 6.5],
        [0, -3, -2, 4, 3],
        [1, 5, 5, 30, 30],
        [0, 4, 4, 4.2, 4.3],
        [1, 14, 2, 18, 5.5],
        [0, 3.5, 2.5, 6.5, 6.5],
    ]
)
REGION_OPSETS = (7, 9, 10, 16, 22, HIGHEST)
FREE_REGIONS = ({2: "height", 3: "width"}, {0: "regions"})


def _regions(name: str, function, opsets=REGION_OPSETS, double: bool = False, dynamic=FREE_REGIONS) -> Record:
    dtype = torch.float64 if double else torch.float32
    return Record(name, function, (IMAGES.to(dtype), REGIONS.to(dtype)), opsets, atol=1e-5, dynamic=dynamic)


def _boxes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    corners = floats(2, count, 2).abs() * 12
    boxes = torch.cat([corners[0], corners[0] + corners[1]], dim=1)
    # A box whose corners are swapped overlaps nothing, and equal scores keep their order.
    boxes[3 % count] = boxes[3 % count][[2, 3, 0, 1]]
    scores = floats(count).round(decimals=1)
    return boxes, scores


def _suppression(name: str, boxes: torch.Tensor, scores: torch.Tensor, opsets=(7, 9, 10, HIGHEST)) -> Record:
    free = ({0: "boxes"}, {0: "boxes"})
    return Record(name, lambda b, s: vision.nms(b, s, 0.3), (boxes, scores), opsets, dynamic=free)


def _convolution(
    name: str, options: tuple, out: tuple[int, int], use_mask: bool, opsets=(7, 9, 19, HIGHEST), dynamic=None
) -> Record:
    kernel = (3, 2) if use_mask else (3, 3)
    groups, offset_groups = options[-2:]
    taps = offset_groups * kernel[0] * kernel[1]
    mask = floats(2, taps, *out).sigmoid() if use_mask else torch.zeros(2, 1)
    inputs = (IMAGES, floats(6, 8 // groups, *kernel), 2 * floats(2, 2 * taps, *out), mask, floats(6))
    return Record(
        name,
        lambda x, w, o, m, b: vision.deform_conv2d(x, w, o, m, b, *options, use_mask),
        inputs,
        opsets,
        atol=1e-4,
        dynamic=dynamic,
    )


RECORDS = [
    _regions("roi_align", lambda x, r: vision.roi_align(x, r, 0.7, 3, 2, 2, True)),
    _regions("roi_align adaptive", lambda x, r: vision.roi_align(x, r, 1.0, 3, 2, -1, True)),
    _regions("roi_align unaligned", lambda x, r: vision.roi_align(x, r, 0.7, 3, 2, 0, False)),
    _regions(
        "roi_align double", lambda x, r: vision.roi_align(x, r, 1.0, 1, 2, 2, True), (9, 22), double=True
    ),
    _regions("roi_pool", lambda x, r: vision.roi_pool(x, r, 0.7, 3, 2)[0], (7, 9, 22)),
    _regions("roi_pool with positions", lambda x, r: vision.roi_pool(x, r, 0.7, 3, 2), (7, 9, HIGHEST)),
    _regions("roi_pool double", lambda x, r: vision.roi_pool(x, r, 1.0, 2, 2)[0], (9, HIGHEST), double=True),
    _regions("ps_roi_align", lambda x, r: vision.ps_roi_align(x, r, 0.7, 2, 2, 2), (7, 9, HIGHEST)),
    _regions("ps_roi_align adaptive", lambda x, r: vision.ps_roi_align(x, r, 1.0, 2, 2, -1), (9, HIGHEST)),
    _regions("ps_roi_pool", lambda x, r: vision.ps_roi_pool(x, r, 0.7, 2, 4), (7, 9, HIGHEST)),
    _suppression("nms", *_boxes(20)),
    _suppression("nms double", *(value.double() for value in _boxes(20)), opsets=(9, HIGHEST)),
    _convolution("deform_conv2d", (2, 1, 1, 2, 1, 2, 2, 2), (5, 13), use_mask=True),
    _convolution(
        "deform_conv2d without mask",
        (1, 1, 1, 1, 1, 1, 1, 1),
        (9, 11),
        use_mask=False,
        dynamic=({0: "n", 2: "h", 3: "w"}, None, {0: "n", 2: "h", 3: "w"}, {0: "n"}, None),
    ),
]


@parametrized(RECORDS)
def test_agrees_with_the_kernel(record: Record) -> None:
    check(record)


class _Detector(torch.nn.Module):
    def forward(self, features: torch.Tensor, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept = boxes[torch.ops.torchvision.nms(boxes, scores, 0.3)]
        rows = torch.cat([kept.new_zeros(kept.shape[0], 1), kept], dim=1)
        return torch.ops.torchvision.roi_align(features, rows, 0.5, 2, 2, 2, True)


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_any_number_of_boxes_is_suppressed_and_pooled(opset: int, count: int) -> None:
    model = _Detector().eval()
    free = {"features": None, "boxes": {0: "n"}, "scores": {0: "n"}}
    program = opsetta.export(model, (IMAGES[:1], *_boxes(12)), opset=opset, dynamic_shapes=free)
    boxes, scores = (value[:count] for value in _boxes(12))
    expected = model(IMAGES[:1], boxes, scores)
    torch.testing.assert_close(program(IMAGES[:1], boxes, scores), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "convert", [torch.jit.script, lambda m: torch.jit.trace(m, (IMAGES[:1], *_boxes(12)))]
)
def test_torchscript_agrees(convert) -> None:
    model, arguments = _Detector().eval(), (IMAGES[:1], *_boxes(12))
    program = opsetta.export(convert(model), arguments, opset=11)
    torch.testing.assert_close(program(*arguments), model(*arguments), atol=1e-5, rtol=1e-4)


def test_the_import_change_writes_the_operators(tmp_path) -> None:
    from opsetta import torch_onnx

    model, arguments = _Detector().eval(), (IMAGES[:1], *_boxes(12))
    path = tmp_path / "detector.onnx"
    torch_onnx.export(model, arguments, path, opset_version=16)
    assert {node.op_type for node in opsetta.load(path).model.graph} >= {"NonMaxSuppression", "RoiAlign"}

"""Non-maximum suppression in several styles, and what else has sizes that depend on data."""

import torch
from torch import Tensor

from .records import Record, scripted

RECORDS: list[Record] = []
_BOXES = torch.tensor(
    [[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [21, 21, 30, 30.0], [50, 50, 60, 60]]
)
_SCORES = torch.tensor([0.9, 0.8, 0.7, 0.95, 0.3])
_ANY = {"boxes": {0: "n"}, "scores": {0: "n"}}


def _random(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    corner = torch.rand([count, 2], generator=generator) * 20
    return torch.cat([corner, corner + 5], 1), torch.rand([count], generator=generator)


def intersection_over_union(a: Tensor, b: Tensor) -> Tensor:
    """Of boxes [n, 4] with boxes [m, 4]: [n, m]."""
    top = torch.max(a[:, None, :2], b[None, :, :2])
    bottom = torch.min(a[:, None, 2:], b[None, :, 2:])
    size = (bottom - top).clamp(min=0)
    shared = size[..., 0] * size[..., 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return shared / (area_a[:, None] + area_b[None] - shared)


@scripted(
    RECORDS,
    _BOXES,
    _SCORES,
    0.5,
    further=[(*_random(9), 0.2), (*_random(1), 0.5), (*_random(12), 0.9)],
    dynamic=_ANY,
)
def nms_keeps_indices_in_a_list(boxes: Tensor, scores: Tensor, threshold: float):
    order = scores.argsort(descending=True)
    overlaps = intersection_over_union(boxes, boxes)
    keep: list[int] = []
    for position in range(order.size(0)):
        candidate = int(order[position])
        suppressed = False
        for kept in keep:
            if bool(overlaps[kept, candidate] > threshold):
                suppressed = True
                break
        if not suppressed:
            keep.append(candidate)
    return torch.tensor(keep)


@scripted(
    RECORDS,
    _BOXES,
    _SCORES,
    0.5,
    further=[(*_random(9), 0.2), (*_random(1), 0.5), (*_random(12), 0.9)],
    dynamic=_ANY,
)
def nms_shrinks_what_is_left(boxes: Tensor, scores: Tensor, threshold: float):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        first = order[0]
        keep.append(first)
        if order.numel() == 1:
            break
        rest = order[1:]
        overlap = intersection_over_union(boxes[first : first + 1], boxes[rest])[0]
        order = rest[overlap <= threshold]
    return torch.stack(keep)


@scripted(
    RECORDS,
    _BOXES,
    _SCORES,
    0.5,
    further=[(*_random(9), 0.2), (*_random(1), 0.5), (*_random(12), 0.9)],
    dynamic=_ANY,
)
def nms_by_maximum(boxes: Tensor, scores: Tensor, threshold: float):
    """No sort: the best of those alive is taken until none is."""
    left = scores.clone()
    chosen = torch.zeros([0], dtype=torch.long)
    while bool((left > 0).any()):
        best = left.argmax()
        chosen = torch.cat([chosen, best.view(1)])
        overlap = intersection_over_union(boxes[best].unsqueeze(0), boxes)[0]
        left[overlap > threshold] = 0.0
        left[best] = 0.0
    return chosen, boxes[chosen]


@scripted(RECORDS, _BOXES, _SCORES, 0.5, further=[(_BOXES.flip(0) + torch.rand(5, 4), _SCORES, 0.1)])
def nms_with_a_mask(boxes: Tensor, scores: Tensor, threshold: float):
    order = scores.argsort(descending=True)
    overlaps = intersection_over_union(boxes[order], boxes[order])
    keep = torch.ones([boxes.size(0)], dtype=torch.bool)
    for i in range(boxes.size(0)):
        if bool(keep[i]):
            keep[i + 1 :] &= overlaps[i, i + 1 :] <= threshold
    return order[keep]


@scripted(
    RECORDS,
    torch.randn(4, 3),
    0.0,
    further=[(torch.randn(9, 3), 0.5), (torch.rand(1, 3), -1.0)],
    dynamic={"x": {0: "n"}},
)
def masks_and_nonzero(x: Tensor, threshold: float):
    mask = x[:, 0] > threshold
    chosen = x[mask]
    if chosen.size(0) == 0:
        return torch.zeros([1, 3]), torch.zeros([1], dtype=torch.long)
    where = mask.nonzero().squeeze(1)
    return chosen - chosen.mean(0), where + chosen.shape[0]


@scripted(
    RECORDS, torch.randn(4, 3), further=[(torch.randn(9, 3),), (torch.rand(1, 3),)], dynamic={"x": {0: "n"}}
)
def masked_writes(x: Tensor):
    y = x.clone()
    y[y < 0] = 0.0
    y[y > 0.5] *= 2.0
    for i in range(x.size(0)):
        row = y[i]
        if bool((row == 0).any()):
            row[row == 0] = float(i)
    return y, torch.masked_select(y, y > 1).sum()


@scripted(
    RECORDS, torch.randn(6), 2, further=[(torch.randn(9), 5), (torch.rand(3), 1)], dynamic={"x": {0: "n"}}
)
def topk_of_a_computed_count(x: Tensor, k: int):
    values, index = torch.topk(x, min(k, x.numel()))
    return values, index, values.view(-1, 1) * x.view(1, -1)


@scripted(
    RECORDS,
    torch.tensor([3, 1, 3, 0, 1]),
    further=[(torch.tensor([5, 5, 5]),), (torch.tensor([0]),)],
    dynamic={"x": {0: "n"}},
)
def run_lengths(x: Tensor):
    values: list[int] = []
    lengths: list[int] = []
    for i in range(x.size(0)):
        item = int(x[i].item())
        if len(values) > 0 and values[-1] == item:
            lengths[-1] += 1
        else:
            values.append(item)
            lengths.append(1)
    return torch.tensor(values), torch.tensor(lengths)

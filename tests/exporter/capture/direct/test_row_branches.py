"""Branches on a number of rows that depends on data: both sides agree, or the capture refuses the line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import opsetta
from opsetta.exporter.capture.direct.row_branches import MOST_BRANCHES
from opsetta.registration import CaptureError

ROWS = torch.tensor(
    [
        [0.9, 0.1, 5.0, 2.0],
        [0.2, 0.8, 1.0, 4.0],
        [0.7, 0.6, 3.0, 0.5],
        [0.6, 0.9, 2.5, 1.5],
        [0.1, 0.3, 4.0, 1.0],
    ]
)
CALLS = {
    "some": ROWS,
    "none": ROWS * torch.tensor([0.0, 0.0, 1.0, 1.0]),
    "all": ROWS + 1,
    "one": ROWS * torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])[:, None],
}


class EarlyReturn(nn.Module):
    """detectron2: nothing above the threshold ends the function."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keep = torch.where(x[:, 0] > 0.5)[0]
        if len(keep) == 0:
            return x.new_zeros((0, 3)), torch.empty((0,), dtype=torch.int64)
        rows = x[keep]
        order = rows[:, 2].argsort(descending=True)
        return rows[order][:, 1:] * 2, keep[order]


class ImageLoop(nn.Module):
    """YOLO: a list of results per image, which stay as they are for images without detections."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        batch = torch.stack([x, x.flip(0) * 0.9])
        output = [torch.zeros((0, 4))] * batch.shape[0]
        for number, rows in enumerate(batch):
            rows = rows[rows[:, 0] > 0.5]
            if not rows.shape[0]:
                continue
            corners = torch.cat((rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2), 1)
            output[number] = corners[rows[:, 2].argsort(descending=True)[:2]]
        return output


class Levels(nn.Module):
    """mmdetection: levels with boxes are collected, and joined if there are any."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for column in range(2):
            rows = x[x[:, column] > 0.5]
            if rows.size(0) > 0:
                levels.append(rows)
        if not levels:
            return x[:0]
        return torch.cat(levels)


class Trick(nn.Module):
    """torchvision: the largest coordinate, which PyTorch refuses to compute without boxes."""

    def shift(self, boxes: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        if boxes.numel() == 0:
            return torch.empty((0, 2), dtype=torch.float32, device=boxes.device)
        return boxes + (classes * (boxes.max() + torch.tensor(1).to(boxes)))[:, None]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        valid = torch.nonzero(x[:, 0] > 0.5).squeeze(1)
        return self.shift(x[valid, 2:], x[valid, 1].round()), valid


class Masked(nn.Module):
    """`mask.any()` and sums of masks, before assignments that change nothing without true elements."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask, result = x[:, 0] > 0.5, torch.zeros_like(x)
        if mask.any():
            result[mask] = x[mask].exp()
        scores = x.new_zeros(0)
        if mask.sum() > 0:
            scores = x[mask].amax(1)
        if not torch.any(x > 4):
            return result, scores
        result = result.clone()
        result[x > 4] = -1
        return result, scores


class TwoFilters(nn.Module):
    """The second number of rows depends on the first, and the same question is asked twice."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x[x[:, 0] > 0.5]
        if rows.shape[0] == 0:
            return x[:0], x.new_zeros(0)
        rows = rows[rows[:, 1] > 0.5]
        kept = rows + 1
        if rows.shape[0] < 1:
            kept = torch.zeros(3, 4)
        if rows.shape[0] == 0:
            return x[:0], kept[:0, 0]
        return kept, kept.amax(1)


class PaddingMask(nn.Module):
    """FSMT: a mask of nothing is no mask; scores are reshaped to apply it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask: torch.Tensor | None = x[:, 0] > 0.5
        if mask is not None and not mask.any():
            mask = None
        scores = x @ x.t()
        if mask is not None:
            scores = scores.view(1, 5, 5).masked_fill(mask.unsqueeze(0).unsqueeze(1), -10.0).view(5, 5)
        return scores.softmax(-1)


class GlobalRows(nn.Module):
    """Longformer: scores of the chosen rows come first, and are taken away again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x[:, 0] > 0.5).unsqueeze(0)
        scores, values = (x @ x.t()).unsqueeze(0), x.unsqueeze(0)
        if not chosen.flatten().any().item():
            return nn.functional.dropout(scores.softmax(-1), 0.1, self.training) @ values
        count = chosen.long().sum(1).max()
        rows = chosen.nonzero(as_tuple=True)
        keys = x.new_zeros(1, count, 4)
        keys[(torch.arange(count) < chosen.sum(1)[:, None]).nonzero(as_tuple=True)] = values[rows]
        joined = torch.cat([torch.einsum("bld,bsd->bls", values, keys), scores], -1).softmax(-1)
        joined = nn.functional.dropout(joined, 0.1, self.training)
        result = joined.narrow(-1, 0, count) @ keys
        result = result + joined.narrow(-1, count, joined.shape[-1] - count).contiguous() @ values
        own = keys @ values.transpose(1, 2)
        assert list(own.size()) == [1, count, 5], own.size()
        written = (own.softmax(-1)[0] @ x)[torch.arange(count)].view(count, 2, 2)
        result[rows] = written[rows[1] * 0].view(len(rows[0]), -1) + result[rows]
        return result


EQUAL = [
    EarlyReturn(),
    ImageLoop(),
    Levels(),
    Trick(),
    Masked(),
    TwoFilters(),
    PaddingMask(),
    GlobalRows(),
]


def _leaves(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("model", EQUAL, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("example", ["some", "none"])
def test_sides_that_agree_are_one(model: nn.Module, example: str) -> None:
    model = model.eval()
    program = opsetta.export(model, (CALLS[example].clone(),), opset=13 if example == "some" else 17)
    for rows in CALLS.values():
        for actual, expected in zip(_leaves(program(rows)), _leaves(model(rows.clone())), strict=True):
            torch.testing.assert_close(actual, expected)


class OtherResult(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0.5]
        if len(rows) == 0:
            return torch.ones(4)
        return rows.sum(0)


class OtherType(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0.5]
        if len(rows) == 0:
            return torch.zeros(0, 4, dtype=torch.float64)
        return rows


class OtherStructure(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows = x[x[:, 0] > 0.5]
        return [] if rows.shape[0] == 0 else [rows]


class ChangedMask(nn.Module):
    """The mask has other elements when the code asks than when it chose the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x[:, 0] > 0.5
        rows = x[mask]
        mask &= x[:, 1] > 0.5
        return rows if mask.any() else rows[:0]


class WrittenCopy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask, copy = x[:, 0] > 0.5, x.clone()
        copy[0] = 7
        if not mask.any():
            return x
        copy[mask] = 1
        return copy


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0.5]
        if len(rows) == 0:
            return rows
        self.calls += 1
        return rows * 1


class ManyRows(nn.Module):
    """Not a question whether there are rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0.5]
        return rows[rows[:, 2].argsort()][:2] if len(rows) > 2 else rows


class SizeOnOneSide(nn.Module):
    """The side without rows is another one for many columns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0.5]
        if len(rows) == 0:
            return torch.zeros(1, x.shape[1]) if x.shape[1] > 8 else x[:0]
        return rows


class ManyBranches(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for number in range(MOST_BRANCHES + 1):
            rows = x[x[:, 0] > number]
            results.append(rows if len(rows) > 0 else x[:0])
        return results


class OtherMask(nn.Module):
    """All elements but those of the mask are filled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x > 0.5).view(-1)
        if not mask.any():
            return x
        return x.masked_fill(mask.logical_not().view(5, 4), 0.0)


class NotZero(nn.Module):
    """Something else than 0 is added where nothing is chosen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 0.5
        if not mask.any():
            return x
        return x + mask.float().exp()


class LargerOfTwo(nn.Module):
    """The maximum of two tensors, of which one is 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 0.5
        if not mask.any():
            return torch.zeros_like(x)
        return torch.max(mask.float(), x)


class OtherBits(nn.Module):
    """The bits of the elements as integers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 0.5
        return x.view(torch.int32) if mask.any() else x


class OtherPart(nn.Module):
    """As many rows as were chosen are left out at the end; one more without any."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = (x[:, 0] > 0.5).sum()
        if count == 0:
            return x
        return x.narrow(0, 0, 4 - count // 2)


class FirstRows(nn.Module):
    """torchvision: the best boxes, and two further branches, one of them on the side of the other."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x[x[:, 0] > 0.5]
        if not len(rows):
            rows = torch.ones(1, 4)
        elif rows.numel() > 8:
            rows = rows[rows[:, 2].argsort(descending=True)[:2]]
        if rows.shape[0] < 2:
            rows = torch.cat([rows, rows.new_zeros(2 - rows.shape[0], 4)])
        return rows * 2, x.cumsum(0)


class AllOfMask(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x[:, 0] > 0.5
        scores = x @ x.t()
        if not mask.all():
            scores = scores.masked_fill(~mask, -10.0)
        return scores.softmax(-1)


class TwoNumbers(nn.Module):
    """Each side has weights of its own, and writes to a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, others = x[x[:, 0] > 0.5], x[x[:, 0] <= 0.5]
        result = x.clone()
        if rows.shape[0] > others.shape[0]:
            result[0].mul_(3)
            return self.first(result)
        result += 1
        return self.second(result)


class FirstByIndex(nn.Module):
    """The other side writes to the first row, whose index is 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x[:, 0] > 0.5).nonzero()[:, 0]
        if len(rows) == 0:
            return x
        result = x.clone()
        result[torch.tensor([0])] = torch.zeros(1, 4)
        result[rows] = x[rows] * 2
        return result


class ByClass(nn.Module):
    """pytorch-retinanet: without rows of any class, the results keep one dimension."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        boxes, labels = torch.Tensor([]), torch.Tensor([]).long()
        for label in range(2):
            rows = x[x[:, label] > 0.5]
            if rows.shape[0] == 0:
                continue
            boxes = torch.cat((boxes, rows))
            labels = torch.cat((labels, torch.tensor([label] * rows.shape[0])))
        return boxes, labels


class FilledRows(nn.Module):
    """ssd.pytorch: writes the rows of each class into its part of the result, which no side returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.zeros(2, 3)
        for label in range(2):
            scores = x[:, label][x[:, label] > 0.5]
            if scores.size(0) < 2:
                continue
            best = scores[:3]
            result[label, : best.shape[0]] = best
        return result


class BestOfEach(nn.Module):
    """yolact: whether the part of the sorted scores is contiguous is no question of the model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x[x[:, 0] > 0.5][:, :2].t()
        if scores.size(1) == 0:
            return torch.zeros(1)
        order = scores.sort(1, descending=True)[1][:, :3].contiguous()
        return x[order.view(-1), 2]


class MostRows(nn.Module):
    """FCOS: keeps the best rows where there are more than a limit of their count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = x[:, :2].t() > 0.5
        limit = chosen.sum(1).clamp(max=2)[0]
        scores = x[:, 0][chosen[0]]
        if chosen[0].sum().item() > limit.item():
            scores = scores.topk(int(limit.item()))[0]
        return scores


UNEQUAL = [
    MostRows(),
    BestOfEach(),
    ByClass(),
    FilledRows(),
    FirstByIndex(),
    OtherMask(),
    NotZero(),
    LargerOfTwo(),
    OtherPart(),
    OtherResult(),
    ChangedMask(),
    WrittenCopy(),
    Counter(),
    ManyRows(),
    SizeOnOneSide(),
    FirstRows(),
    AllOfMask(),
    TwoNumbers(),
]


@pytest.mark.parametrize("model", UNEQUAL, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("example", ["some", "none"])
def test_both_sides_are_exported(model: nn.Module, example: str) -> None:
    shapes = ({1: "columns"},) if isinstance(model, SizeOnOneSide) else None
    options: dict[str, Any] = {"dynamic_shapes": shapes, "mutations": "drop", "capture": "direct"}
    opset = 11 if example == "some" else 18
    program = opsetta.export(model.eval(), (CALLS[example].clone(),), opset=opset, **options)
    assert not program.specializations
    for rows in CALLS.values():
        for actual, expected in zip(_leaves(program(rows)), _leaves(model(rows.clone())), strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "model", [OtherBits(), OtherType(), OtherStructure(), ManyBranches()], ids=lambda m: type(m).__name__
)
def test_sides_that_no_if_returns_are_refused(model: nn.Module) -> None:
    options: dict[str, Any] = {"mutations": "drop", "capture": "direct"}
    with pytest.raises(CaptureError, match="branch depends on the values of a tensor") as refusal:
        opsetta.export(model.eval(), (ROWS,), opset=13, **options)
    assert "test_row_branches.py" in str(refusal.value)


def test_a_fixed_branch_is_that_of_the_example() -> None:
    program = opsetta.export(OtherType().eval(), (CALLS["none"],), opset=13, specialize=True)
    assert _leaves(program(ROWS))[0].dtype == torch.float64
    assert program.specializations


class Check(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x[:, 0] > 0.5
        if not mask.any():
            raise ValueError("no detection")
        return x[mask]


def test_a_check_of_rows_is_left_out() -> None:
    program = opsetta.export(Check().eval(), (ROWS,), opset=13)
    torch.testing.assert_close(_leaves(program(ROWS))[0], Check()(ROWS))

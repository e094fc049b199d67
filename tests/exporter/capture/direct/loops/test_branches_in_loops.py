"""Branches on a number of rows in the body of a loop over a dynamic size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opsetta
from opsetta.registration import CaptureError

from ..test_row_branches import CALLS


class ChosenOfImage(nn.Module):
    """A loop over the batch: two branches on numbers of rows in one iteration, and a list of the results."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            if rows.numel() == 0:
                results.append(x.new_zeros(4))
                continue
            best = rows[rows[:, 1] > 0.5]
            results.append(rows.sum(0) if len(best) == 0 else best.sum(0) + rows.sum(0))
        return torch.stack(results)


class SumOfImages(nn.Module):
    """A loop that carries a sum, and leaves it as it is for images without rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(4)
        for number in range(x.shape[0]):
            mask = x[number, :, 0] > 0.5
            if not mask.any():
                continue
            total = total + x[number][mask].sum(0)
        return total


class WrittenImages(nn.Module):
    """A loop that writes to the rows of a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = x.new_zeros(x.shape[0], 4)
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            if not len(rows):
                continue
            result[number] = rows.sum(0)
        return result


def batch_of(calls: str) -> torch.Tensor:
    """The calls of these names as images of a batch."""
    return torch.stack([CALLS[name] for name in calls.split()])


@pytest.mark.parametrize("model", [ChosenOfImage(), SumOfImages(), WrittenImages()], ids=repr)
def test_sides_agree_in_each_iteration_of_a_loop(model: nn.Module) -> None:
    program = opsetta.export(model.eval(), (batch_of("some all"),), dynamic_shapes=({0: "batch"},), opset=13)
    for calls in ("none", "none none", "one none some none"):
        torch.testing.assert_close(program(batch_of(calls)), model(batch_of(calls)))


class OtherFill(nn.Module):
    """A loop whose sides differ."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            results.append(x.new_ones(4) if rows.numel() == 0 else rows.sum(0))
        return torch.stack(results)


class FormerRows(nn.Module):
    """A loop whose sides agree only while no earlier iteration had rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results, former = [], x.new_zeros(4)
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            if rows.numel() == 0:
                results.append(x.new_zeros(4))
                continue
            former = former + rows.sum(0)
            results.append(former)
        return torch.stack(results)


class FirstImage(nn.Module):
    """A loop whose first iteration is recorded apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor | None = None
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            part = x.new_zeros(4) if rows.numel() == 0 else rows.sum(0)
            total = part if total is None else total * 2 + part
        assert total is not None
        return total


@pytest.mark.parametrize("model", [OtherFill(), FormerRows(), FirstImage()], ids=repr)
def test_a_branch_in_a_loop_whose_sides_may_differ_is_refused(model: nn.Module) -> None:
    with pytest.raises(CaptureError, match="branch depends on the values of a tensor") as refusal:
        opsetta.export(model.eval(), (batch_of("some all"),), dynamic_shapes=({0: "batch"},), opset=13)
    assert "test_branches_in_loops.py" in str(refusal.value)


class RoutedExperts(nn.Module):
    """LongCat-Flash: a loop over the experts that are chosen, whose numbers are read from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(6, 4, 4))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=6).permute(2, 1, 0)
        for row in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            expert = int(row.item())
            position, token = torch.where(mask[expert])
            if token.numel() == 0:
                continue
            scaled = F.linear(x[token], self.weights[expert]) * factors[token, position, None]
            result.index_add_(0, token, scaled)
        return result


def routed(tokens: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(tokens)
    return torch.randn(tokens, 4), torch.randint(6, (tokens, 2)), torch.rand(tokens, 2)


@pytest.mark.filterwarnings("ignore:the export is valid for n >= 2")
def test_a_number_that_each_iteration_reads() -> None:
    program = opsetta.export(RoutedExperts().eval(), routed(3), dynamic_shapes=({0: "n"},) * 3, opset=13)
    for tokens in (2, 4, 9):
        program.verify(routed(tokens))


class NumberOfLast(nn.Module):
    """Code after the loop uses the number that the last iteration read."""

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        results, number = [], 0
        for index in range(x.shape[0]):
            number = int(numbers[index].item())
            results.append(x[index] * number)
        return torch.stack(results) * number


class NumberOfFormer(nn.Module):
    """An iteration uses the number that the one before has read."""

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        results, number = [], 0
        for index in range(x.shape[0]):
            results.append(x[index] * number)
            number = int(numbers[index].item())
        return torch.stack(results)


@pytest.mark.parametrize("model", [NumberOfLast(), NumberOfFormer()], ids=repr)
def test_a_number_that_leaves_its_iteration_is_refused(model: nn.Module) -> None:
    example = torch.randn(3, 4), torch.tensor([1, 2, 3])
    with pytest.raises(CaptureError, match="no Loop operator.*test_branches_in_loops.py"):
        opsetta.export(model.eval(), example, dynamic_shapes=({0: "n"},) * 2, opset=13)

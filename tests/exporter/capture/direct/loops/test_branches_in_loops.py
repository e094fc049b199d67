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
    """A loop whose sides append different tensors."""

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


class CarriedOnOneSide(nn.Module):
    """A loop whose sides change two variables, one of them on one side only, after a test of a number."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total, decay = x.new_zeros(4), x.new_ones(4)
        for number in range(x.shape[0]):
            if x[number, 0, 0].item() > 0.5:
                total = total + x[number].sum(0)
                decay = decay * 0.5
            else:
                total = total - decay
        return total, decay


class EveryOtherImage(nn.Module):
    """A loop with a condition on its index, and one on a mask within one of its sides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results, last = [], x.new_zeros(4)
        for number in range(x.shape[0]):
            if number % 2 == 0:
                last = torch.tanh(last + x[number].mean(0))
            elif (x[number, :, 1] > 0.5).any():
                last = last * 2
            results.append(last)
        return torch.stack(results)


class WrittenOnBothSides(nn.Module):
    """A loop that writes to a tensor, which it also reads, in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(4)
        for image in x:
            rows = image[image[:, 0] > 0.5]
            if len(rows) == 0:
                total *= 0.5
            else:
                total += rows.sum(0)
        return total


class UntilNoRows(nn.Module):
    """A loop that ends at an image without rows, and has another condition behind that one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total, count = x.new_zeros(4), x.new_zeros(())
        for image in x:
            rows = image[image[:, 0] > 0.5]
            if rows.numel() == 0:
                total = -total
                break
            if (image[:, 1] > 0.5).all():
                total = total * 2
            total = total + rows.amax(0)
            count = count + 1
        return total, count


class CellsOfImages(nn.Module):
    """Conditions in a loop inside of another one, on the indices of both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for number in range(x.shape[0]):
            total = x.new_zeros(4)
            for row in range(x.shape[1]):
                if x[number, row, 0].item() > 0.5:
                    total = torch.tanh(total + x[number, row])
                elif (row + number) % 2 == 0:
                    total = total - x[number, row]
            results.append(total)
        return torch.stack(results)


class SeenOnOneSide(nn.Module):
    """A loop that changes a Python value on one side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total, is_seen = x.new_zeros(4), False
        for number in range(x.shape[0]):
            if (x[number, :, 0] > 0.5).any():
                is_seen = True
            total = total + x[number].sum(0)
        return total if is_seen else -total


class UntilDone(nn.Module):
    """A flag on one side of a condition, and a position on a side within the other one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total, is_done, largest = x.new_zeros(4), False, 0
        for number in range(x.shape[0]):
            if not is_done:
                total = total + x[number].sum(0)
                if x[number].sum().item() > x[largest].sum().item():
                    largest = number
            if total[0].item() > 3:
                is_done = True
        return total, x[largest]


class CountedOnOneSide(nn.Module):
    """A count on one side, a factor that each iteration changes, and a flag where the loop ends."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total, count, factor, is_ended, length = x.new_zeros(4), 0, 1.0, False, 0
        for number in range(x.shape[0]):
            if (x[number, :, 1] > 0.9).any():
                is_ended = True
                break
            if (x[number, :, 0] > 0.5).any():
                total = total + x[number].sum(0) * factor
                count += 1
            factor *= 0.5
            length += 1
        total = total / max(count, 1)
        return -total if is_ended else total, torch.tensor([count, length])


DIFFERING = [
    SeenOnOneSide(),
    UntilDone(),
    CountedOnOneSide(),
    UntilNoRows(),
    CellsOfImages(),
    OtherFill(),
    FormerRows(),
    CarriedOnOneSide(),
    EveryOtherImage(),
    WrittenOnBothSides(),
]


@pytest.mark.parametrize("model", DIFFERING, ids=repr)
def test_sides_that_differ_become_an_if_in_the_loop(model: nn.Module) -> None:
    dynamic = ({0: "batch", 1: "rows"},)
    program = opsetta.export(model.eval(), (batch_of("some all"),), dynamic_shapes=dynamic, opset=13)
    for calls in ("none", "some one none all", "one none some none all"):
        torch.testing.assert_close(program(batch_of(calls)), model(batch_of(calls)))


class AppendedOnOneSide(nn.Module):
    """A loop that appends to a list on one side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            if rows.numel() == 0:
                continue
            results.append(rows.amax(0))
        return torch.stack(results)


class DoubledOnOneSide(nn.Module):
    """A loop that multiplies an integer, which Python gives as many bits as it needs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total, factor = x.new_zeros(4), 1
        for number in range(x.shape[0]):
            if (x[number, :, 0] > 0.5).any():
                total = total + x[number].sum(0)
            else:
                factor = factor * 2
        return total * factor


class StateInTuple(nn.Module):
    """A loop that keeps its state in a tuple, and replaces it on one side by what it computed before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (x.new_zeros(4), x.new_ones(4))
        for number in range(x.shape[0]):
            new = state[0] + x[number].sum(0), state[1] * 0.5
            if (x[number, :, 0] > 0.5).any():
                state = new
        return state[0] + state[1]


class EndedTwice(nn.Module):
    """A loop that ends in two ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(4)
        for number in range(x.shape[0]):
            if (x[number, :, 0] > 0.5).all():
                break
            total = total + x[number].sum(0)
            if total[0].item() > 3:
                break
        return total


class SideOfOneImage(nn.Module):
    """Code after a loop reads a variable that has no tensor before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = None
        for number in range(x.shape[0]):
            rows = x[number][x[number, :, 0] > 0.5]
            part = x.new_ones(4) if rows.numel() == 0 else rows.amax(0)
        return part


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (EndedTwice(), "ends early .break. on several sides"),
        (FirstImage(), "has a condition, and changes .total."),
        (AppendedOnOneSide(), "appends to the list 'results' on one side"),
        (DoubledOnOneSide(), "multiplies 'factor'"),
        (StateInTuple(), "changes 'state'"),
        (SideOfOneImage(), "assign it to a variable that is a tensor before the loop"),
    ],
)
def test_sides_that_leave_other_things_behind_are_refused(model: nn.Module, message: str) -> None:
    example, options = (batch_of("some all"),), {"dynamic_shapes": ({0: "batch"},), "capture": "direct"}
    with pytest.raises(CaptureError, match=message) as refusal:
        opsetta.export(model.eval(), example, opset=13, **options)
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
    dynamic = ({0: "n"},) * 2
    with pytest.raises(CaptureError, match="no Loop operator.*test_branches_in_loops.py"):
        opsetta.export(model.eval(), example, dynamic_shapes=dynamic, opset=13, capture="direct")

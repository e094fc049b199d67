"""Loops that direct capture refuses are right at every length, if TorchScript compiles the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opsetta
from opsetta.exporter.capture.torchscript import multiplies_numbers


class Model(torch.nn.Module):
    """A table of seven words, and a layer that scores them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(7, 4)
        self.scores = torch.nn.Linear(4, 7)


class EarlyReturn(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4)
        for t in range(x.shape[0]):
            total = total + x[t]
            if bool(total.max() > 3):
                return self.scores(total) * 2
        return self.scores(total)


class SeveralBreaks(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4)
        for t in range(x.shape[0]):
            if bool(x[t].sum() > 5):
                break
            total = torch.tanh(total + x[t])
            if bool(total.min() > 0.9):
                break
        return total


class UntilSmall(Model):
    """A condition of two parts: on a counter, and on a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = 0
        while count < x.shape[0] and bool(x.abs().max() > 1e-2):
            x = x * 0.5
            count += 1
        return x + count


class GreedyDecoder(Model):
    """Tokens grow by one in each step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.zeros(1, 1, dtype=torch.long)
        for _ in range(x.shape[0]):
            state = self.words(tokens).mean(1) + x.mean(0)
            tokens = torch.cat([tokens, self.scores(state).argmax(-1, keepdim=True)], 1)
        return tokens


class EarlyExit(Model):
    """A fixed number of steps, which ends before where nothing changes any more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            before = x
            x = torch.cos(x)
            if bool((x - before).abs().max() < 1e-2):
                break
        return x


class RepeatedRows(Model):
    """A list of parts of different lengths."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = []
        for t in range(x.shape[0]):
            count = int(x[t].abs().sum().item()) + 1
            parts.append(x[t].unsqueeze(0).expand(count, -1))
        return torch.cat(parts, 0)


class OnOneSide(Model):
    """A list to which one side of a condition appends."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = [x[0] * 2]
        for t in range(x.shape[0]):
            if bool(x[t, 0] > 0):
                rows.append(x[t])
        return torch.stack(rows)


class NumbersOfList(Model):
    """A loop over the numbers in a tensor, one of which the next iteration reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start, sums = 0, []
        counts: list[int] = (x[:, 0] > 0).long().tolist()
        for count in counts:
            sums.append(x[start : start + count + 1].sum(0))
            start += count
        return torch.stack(sums)


def _export(model: Callable[..., object], **options: object) -> opsetta.ONNXProgram:
    return opsetta.export(model, (torch.randn(5, 4),), opset=13, dynamic_shapes=({0: "n"},), **options)


@pytest.mark.parametrize(
    "model",
    [
        EarlyReturn,
        SeveralBreaks,
        UntilSmall,
        GreedyDecoder,
        EarlyExit,
        RepeatedRows,
        OnOneSide,
        NumbersOfList,
    ],
)
def test_three_lengths_agree_with_eager(model: type[Model]) -> None:
    program = _export(model().eval())
    names = {value.name for value in program.source.graph.initializers.values()}
    assert names <= set(model().state_dict())
    for length in (1, 4, 11):
        for seed in range(3):
            torch.manual_seed(seed)
            program.verify((torch.randn(length, 4),))


def halve(x: torch.Tensor) -> torch.Tensor:
    while bool(x.abs().max() > 1):
        x = x / 2
    return x


def test_a_function_agrees_at_the_lowest_opsets() -> None:
    program = _export(halve)
    for lowered in (program, program.lower(9)):
        lowered.verify((torch.randn(3, 4) * 100,))


class Product(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 1
        for t in range(x.shape[0]):
            if bool(x[t, 0] > 0):
                factor = factor * 2
        return x * factor


class Unsupported(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.abs().max() > 1):
            x = sorted([x / 2, x / 4], key=id)[0]
        return x


class Written(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros(4), []
        for t in range(x.shape[0]):
            states.append(state)
            state += x[t]
        return torch.stack(states)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Product, "a loop multiplies an integer"),
        (Unsupported, "torch.jit.script refuses the model"),
        (Written, "writes to a tensor that it appends to a list"),
    ],
)
def test_other_loops_are_refused_with_their_line(model: type[Model], reason: str) -> None:
    with pytest.raises(opsetta.CaptureError, match=reason) as refusal:
        _export(model().eval())
    assert "test_scripted_loops.py" in str(refusal.value)


@torch.jit.script
def count_sums(n: int) -> int:
    first, second = 0, 1
    for _ in range(n):
        first, second = second, first + second
    return first


@torch.jit.script
def count_steps(n: int, step: int) -> int:
    total, count = 0, 0
    while count < n:
        total = total + step * 2
        count += 1
    return total * count


def test_sums_of_carried_numbers_are_products() -> None:
    """Python's integers have any number of bits: Fibonacci's numbers need more than 64 after 92 steps."""
    assert multiplies_numbers(count_sums)
    assert not multiplies_numbers(count_steps)

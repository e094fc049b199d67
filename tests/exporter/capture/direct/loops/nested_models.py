"""Loops inside of loops over dynamic sizes, in the style of public code."""

from __future__ import annotations

import torch
from torch import Tensor

from .loop_models import Cells


class PairScores(Cells):
    """The scores of all pairs, in lists of lists, by a function with a loop of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.score(frame, x) for frame in x.unbind(1)], 1)

    def score(self, frame: Tensor, x: Tensor) -> Tensor:
        return torch.stack([(frame * other).sum(-1) for other in x.unbind(1)], 1)


class TimeWarping(Cells):
    """The costs of aligning a sequence with its reverse, in a table that both loops write to."""

    def forward(self, x: Tensor) -> Tensor:
        size, other = x.shape[1], x.flip(1)
        cost = torch.zeros(x.shape[0], size + 1, size + 1)
        for i in range(size):
            for j in range(size):
                distance = (x[:, i] - other[:, j]).abs().sum(-1)
                best = torch.minimum(torch.minimum(cost[:, i, j + 1], cost[:, i + 1, j]), cost[:, i, j])
                cost[:, i + 1, j + 1] = distance + best
        return cost[:, size, size]


class RowsOfWarping(Cells):
    """The same with one row of the table: the outer loop carries what the inner one collects."""

    def forward(self, x: Tensor) -> Tensor:
        row = torch.zeros(x.shape[0], x.shape[1])
        for i in range(x.shape[1]):
            left, cells = torch.zeros(x.shape[0]), []
            for j in range(x.shape[1]):
                left = torch.minimum(left, row[:, j]) + (x[:, i] - x[:, j]).abs().sum(-1)
                cells.append(left)
            row = torch.stack(cells, 1)
        return row


class Characters(Cells):
    """A recurrent layer in each step, whose first step differs, and another loop over its results."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        words = []
        for t in range(x.shape[1]):
            for u in range(x.shape[1]):
                row = x[:, u] * x[:, t]
                hidden = self.gru(row) if u == 0 else self.gru(row, hidden)  # noqa: F821
            words.append(hidden)
        total = hidden
        for word in torch.stack(words, 1).unbind(1):
            total = torch.tanh(total + word)
        return total, torch.stack(words, 1)


class Orthogonal(Cells):
    """Subtracts projections on the rows before; the inner loop has no iterations for the first row."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.zeros_like(x)
        for t in range(x.shape[1]):
            rest = x[:, t]
            for u in range(t):
                rest = rest - rows[:, u] * (x[:, u] * x[:, t]).sum(-1, keepdim=True) * 0.1
            rows[:, t] = rest
        return rows


class Spans(Cells):
    """Scores of all spans, of which the inner loop sees those that begin at the index."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        size, best = x.shape[1], []
        scores = torch.zeros(x.shape[0], size, size)
        for i in range(size):
            for j in range(i, size):
                scores[:, i, j] = (x[:, i] * x[:, j]).sum(-1)
            best.append(torch.stack([x[:, u] * x[:, i] for u in range(i + 1)], 1).amax(1))
        return scores, torch.stack(best, 1)


class Triples(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0] * 0
        for i in range(x.shape[1]):
            for j, (first, second) in enumerate(zip(x.unbind(1), x.flip(1).unbind(1), strict=True)):
                for k in range(0, x.shape[1], 2):
                    total = total * 0.5 + first * x[:, i] - second * x[:, k] * j
        return total


class StateOfAnotherLoop(Cells):
    """A decoder that begins with the last state of the encoder."""

    def forward(self, x: Tensor) -> Tensor:
        hidden, outputs = x.new_zeros(x.shape[0], 5), []
        for t in range(x.shape[1]):
            hidden = self.gru(x[:, t], hidden)
        for t in range(x.shape[1]):
            hidden = self.gru(x[:, t], hidden)
            outputs.append(hidden)
        return torch.stack(outputs, 1)


NESTED = [
    PairScores,
    TimeWarping,
    RowsOfWarping,
    Characters,
    Orthogonal,
    Spans,
    Triples,
    StateOfAnotherLoop,
]


class FlatList(Cells):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, i] * x[:, j] for i in range(x.shape[1]) for j in range(x.shape[1])], 1)


class LastOfNone(Cells):
    """Reads a value of the last iteration where there may be none."""

    def forward(self, x: Tensor) -> Tensor:
        row, rows = x[:, 0], []
        for t in range(x.shape[1]):
            for u in range(t):
                row = x[:, u] * 2
            rows.append(row)
        return torch.stack(rows, 1)


class BreakInside(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0]
        for t in range(x.shape[1]):
            for _ in range(x.shape[1]):
                total = total + x[:, t]
                break
        return total


class CountedInside(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, count = x[:, 0] * 0, 0
        for t in range(x.shape[1]):
            for u in range(x.shape[0]):
                total = total + x[u, t]
                count += 1
        return total / count


REFUSED = {
    FlatList: "of one iteration",
    LastOfNone: "has no iterations for some indices|changes from one iteration to the next",
    BreakInside: "ends early",
    CountedInside: r"changes 'count' by something else than 'count \+= step'",
}

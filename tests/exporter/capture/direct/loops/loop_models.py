"""Models with Python loops over a dynamic size."""

from __future__ import annotations

import types

import torch
from torch import Tensor, nn


class Cells(nn.Module):
    """Layers that the models share. Inputs are `(batch, time, 4)`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru = nn.GRUCell(4, 5)
        self.lstm = nn.LSTMCell(4, 5)
        self.linear = nn.Linear(4, 5)
        self.transitions = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("state", torch.zeros(4))


class Recurrent(Cells):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden, outputs = x.new_zeros(x.shape[0], 5), []
        for t in range(x.shape[1]):
            hidden = self.gru(x[:, t], hidden)
            outputs.append(hidden)
        return torch.stack(outputs, 1), hidden


class Unbound(Cells):
    def forward(self, x: Tensor) -> Tensor:
        hidden, outputs = x.new_zeros(x.shape[0], 5), []
        for frame in x.unbind(1):
            hidden = self.gru(frame, hidden)
            outputs.append(hidden)
        return torch.stack(outputs, 1)


class OverTensor(Cells):
    """Iterates over a tensor itself; the state begins as a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        outputs, smooth = [], 0
        for frame in x.transpose(0, 1):
            smooth = smooth * 0.3 + frame
            outputs.append(smooth)
        return torch.stack(outputs)


class Enumerated(Cells):
    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.zeros_like(x)
        for index, frame in enumerate(torch.unbind(x, dim=1)):
            outputs[:, index] = frame * 2 + index
        return outputs


class Zipped(Cells):
    def forward(self, x: Tensor) -> Tensor:
        pairs = zip(x.unbind(1), x.flip(1).unbind(1), strict=False)
        return torch.stack([first * 2 - second for first, second in pairs], 1)


class Bidirectional(Cells):
    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        forwards, hidden = [], x.new_zeros(batch, 5)
        for t in range(time):
            hidden = self.gru(x[:, t], hidden)
            forwards.append(hidden)
        backwards, hidden = [], x.new_zeros(batch, 5)
        for t in reversed(range(time)):
            hidden = self.gru(x[:, t], hidden)
            backwards.append(hidden)
        backwards.reverse()
        return torch.cat([torch.stack(forwards, 1), torch.stack(backwards, 1)], -1)


class TwoLayers(Cells):
    """Lists with the states of the layers, whose members are replaced."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = [torch.zeros(x.size(0), 5) for _ in range(2)]
        cell = [torch.zeros(x.size(0), 5) for _ in range(2)]
        outputs = []
        for t in range(x.size(1)):
            hidden[0], cell[0] = self.lstm(x[:, t], (hidden[0], cell[0]))
            hidden[1], cell[1] = self.lstm(hidden[0][:, :4], (hidden[1], cell[1]))
            outputs.append(hidden[1])
        return torch.stack(outputs).transpose(0, 1), cell[0]


class ConditionalField(Cells):
    """The partition function of a conditional random field, from the second step on."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x[:, 0]
        for t in range(1, x.shape[1]):
            scores = torch.logsumexp(scores.unsqueeze(2) + self.transitions, 1) + x[:, t]
        return torch.logsumexp(scores, 1)


class FirstStepDiffers(Cells):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = torch.zeros(x.shape[0], x.shape[1], 5)
        collected = []
        for t in range(x.size(1)):
            frame = self.linear(x[:, t])
            hidden = frame if t == 0 else torch.tanh(hidden + frame)  # noqa: F821
            outputs[:, t, :] = hidden
            collected.append(hidden * 2)
        return outputs, torch.stack(collected, dim=1) / len(collected)


class EverySecond(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, 0]]
        for t in range(0, x.shape[1], 2):
            rows.append(x[:, t] * 2 + rows[-1] * 0.1)
        return torch.stack(rows, 1)


class Slices(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, pieces = x[:, :1] * 0, []
        for t in range(x.shape[1]):
            total = total + x[:, t : t + 1]
            pieces.append(total)
        return torch.cat([*pieces, x], dim=1)


class Prefixes(Cells):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, : t + 1].sum(1) for t in range(x.shape[1])], 1)


class Backwards(Cells):
    """Discounted returns, written from the end of a buffer to its beginning."""

    def forward(self, x: Tensor) -> Tensor:
        returns, total = torch.zeros_like(x), torch.zeros_like(x[:, 0])
        for t in range(x.shape[1] - 1, -1, -1):
            total = x[:, t] + 0.9 * total
            returns[:, t] = total
        return returns


class InPlace(Cells):
    """Adds to a tensor in place, of which there is a view, and reads the row before from a copy."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = torch.zeros(x.shape[0], 4)
        view = total[:, 1]
        x = x.clone()
        for t in range(1, x.shape[1]):
            x[:, t] = x[:, t] + x[:, t - 1] * 0.5
            total += x[:, t]
        return x, total, view


class OwnTensors(Cells):
    """Writes to tensors of an iteration, and replaces tensors with a mask."""

    def forward(self, x: Tensor) -> Tensor:
        outputs, hidden = [], x.new_zeros(x.shape[0], 5)
        for t in range(x.shape[1]):
            frame = x[:, t].clone()
            frame += 1
            frame[:, 0] = 0
            mask = (frame.sum(-1, keepdim=True) > 0).float()
            hidden = mask * self.gru(frame, hidden) + (1 - mask) * hidden
            outputs.append(hidden.argmax(-1))
        return torch.stack(outputs, 1)


class Frames(Cells):
    """Layers with statistics, and a loop over modules, in each iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.ModuleList([nn.GRUCell(4, 4) for _ in range(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states, outputs = [x.new_zeros(x.shape[0], 4) for _ in self.layers], []
        for t in range(x.shape[1]):
            row = self.norm(x[:, t])
            for index, layer in enumerate(self.layers):
                row = states[index] = torch.where(row > 0, layer(row, states[index]), states[index])
            outputs.append(row)
        return torch.stack(outputs, 1).mean(1), torch.stack(states)


class StateOfType(Cells):
    """The first `to` returns the tensor itself, which is written after the loop."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = x[:, 0].clone()
        state = kept
        for t in range(x.shape[1]):
            state = (state.to(torch.float32).contiguous() * 0.5 + x[:, t]).to(torch.float32)
        first = kept + 1
        kept.copy_(state)
        return first, kept * 2


class LastOnly(Cells):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best = x[:, 0]
        for t in range(x.shape[1]):
            doubled = x[:, t] * 2
            best = torch.maximum(best, doubled)
        return best, doubled


class SumOfList(Cells):
    def forward(self, x: Tensor) -> Tensor:
        return sum([x[:, t] * 2 for t in range(x.shape[1])])


class RowOfStackedResults(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, t] * 2 for t in range(x.shape[1])]
        rows = torch.stack(rows, 2)
        return rows[:, 2]


class Counter(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, count = x[:, 0], 0
        for t in range(x.shape[1]):
            total = total + x[:, t]
            count += 1
        return total / count


class CounterInDict(Cells):
    def forward(self, x: Tensor) -> Tensor:
        counts = {"rows": {"seen": 0}}
        for t in range(x.shape[1]):
            x = x + x[:, t : t + 1]
            counts["rows"]["seen"] += 1
        return x / counts["rows"]["seen"]


class IndexAfterwards(Cells):
    def forward(self, x: Tensor) -> Tensor:
        for t in range(x.shape[1]):
            row = x[:, t]
        return x[:, t] + row


class CountedSizes(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, size = x[:, 0] * 0, 1
        for t in range(x.shape[1] - 1, -1, -1):
            total = total + x[:, t] * size
            size = size + x.shape[0]
        return total / size


class CountedPositions(Cells):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows, start = x.new_zeros(x.shape[0], 2 * x.shape[1], 4), 0
        state = types.SimpleNamespace(left=9)
        for t in range(x.shape[1]):
            rows[:, start : start + 2] = torch.stack([x[:, t], -x[:, t]], 1)
            start += 2
            state.left -= 1
        return rows, x.sum() * state.left


class NumberedRows(Cells):
    """Numbers of the rows of tensors."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(0, 1)
        results = rows.new_zeros(rows.shape)
        for number, row in enumerate(rows, start=1):
            results[number - 1] = row * number
        for number, (row, other) in enumerate(zip(rows, rows.flip(0), strict=True)):
            results = results + row * number - other
        return results


class EarlierStates(Cells):
    """An iteration writes and collects the state of the one before."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows, states, ones = x.new_zeros(x.shape[0], x.shape[1], 4), [], []
        state, one = x.new_zeros(x.shape[0], 4), x.new_ones(2)
        for t in range(x.shape[1]):
            rows[:, t] = state
            states.append(state)
            ones.append(one)
            state = torch.tanh(state * 0.5 + x[:, t])
        return rows, torch.stack(states, 1), torch.cat(ones), state


class WrittenState(Cells):
    def forward(self, x: Tensor) -> Tensor:
        state, states = x.new_zeros(x.shape[0], 4), []
        for t in range(x.shape[1]):
            states.append(state)
            state += x[:, t]
        return torch.stack(states, 1)


EXPORTED = [
    Recurrent,
    EarlierStates,
    NumberedRows,
    RowOfStackedResults,
    Unbound,
    OverTensor,
    Enumerated,
    Zipped,
    Bidirectional,
    TwoLayers,
    ConditionalField,
    FirstStepDiffers,
    EverySecond,
    Slices,
    Prefixes,
    Backwards,
    InPlace,
    OwnTensors,
    Frames,
    StateOfType,
    LastOnly,
    SumOfList,
    Counter,
    CounterInDict,
    CountedSizes,
    CountedPositions,
    IndexAfterwards,
]


class Break(Cells):
    def forward(self, x: Tensor) -> Tensor:
        for t in range(x.shape[1]):
            row = x[:, t]
            if t >= 1:
                break
        return row


class LastStepDiffers(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0]
        for t in range(x.shape[1]):
            total = total * 2 if t == x.shape[1] - 1 else total + x[:, t]
        return total


class CounterAsCondition(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, count = x[:, 0], 0
        for t in range(x.shape[1]):
            if count < 9:
                total = total + x[:, t]
            count = count + 1
        return total


class DoubledCounter(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, count = x[:, 0], 1
        for t in range(x.shape[1]):
            total = total + x[:, t]
            count *= 2
        return total / count


class SkippedCounter(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, count = x[:, 0], 0
        for t in range(x.shape[1]):
            total = total + x[:, t]
            if t == 0:
                continue
            count += 1
        return total / count


class SumOfIndices(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total, numbers = x[:, 0], 0
        for t in range(x.shape[1]):
            total = total + x[:, t]
            numbers = numbers + t
        return total * numbers


class EvenSteps(Cells):
    def forward(self, x: Tensor) -> Tensor:
        total = x[:, 0]
        for t in range(x.shape[1]):
            if t % 2 == 0:
                total = total + x[:, t]
        return total


class CounterInModule(Cells):
    def forward(self, x: Tensor) -> Tensor:
        self.gru.count = 0
        for t in range(x.shape[1]):
            x = x + x[:, t : t + 1]
            self.gru.count += 1
        return x / self.gru.count


class SingleResult(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, t] * 2 for t in range(x.shape[1])]
        return rows[1]


class ThirdResult(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for t in range(x.shape[1]):
            rows.append(x[:, t] * 2)
        return rows[2]


class ThirdOfComprehension(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = [x[:, t] * 2 for t in range(x.shape[1])]
        return rows[2]


class Rows(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [x[:, t] * 2 for t in range(x.shape[1])]


class ThirdOfFunction(Cells):
    def rows(self, x: Tensor) -> list[Tensor]:
        rows = [x[:, t] * 2 for t in range(x.shape[1])]
        return rows

    def middle(self, x: Tensor) -> list[Tensor]:
        return self.rows(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.middle(x)[2]


class ThirdOfModule(Cells):
    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows()

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows(x)
        return rows[-1] + rows[2]


class ThirdOfGenerator(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = tuple(x[:, t] * 2 for t in range(x.shape[1]))
        return rows[2]


class PartOfComprehension(Cells):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, t] * 2 for t in range(x.shape[1])][2:])


class Growing(Cells):
    def forward(self, x: Tensor) -> Tensor:
        rows = x[:, :1]
        for t in range(x.shape[1]):
            rows = torch.cat([rows, rows.mean(1, keepdim=True) + x[:, t : t + 1]], 1)
        return rows


class OldView(Cells):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(x.shape[0], 4)
        view = total[0]
        for t in range(x.shape[1]):
            total += x[:, t]
            row = view * 2
        return total, row


WITH_CONDITIONS = [LastStepDiffers, CounterAsCondition, EvenSteps]
REFUSED = {
    WrittenState: "writes to a tensor that it appends to a list",
    Break: "ends early",
    DoubledCounter: "changes 'count' from 4 to 8",
    SkippedCounter: "does not add 1 to 'count'",
    SumOfIndices: "a number that it computes from that of the iteration before",
    CounterInModule: r"gru.*count' from 2 to 3",
    SingleResult: r"members the code reads by number: rows\[1\]",
    ThirdResult: "of one iteration",
    ThirdOfComprehension: r"members the code reads by number: rows\[2\]",
    ThirdOfFunction: r"members the code reads by number: self.middle\(x\)\[2\]",
    ThirdOfModule: r"members the code reads by number: rows\[2\]",
    ThirdOfGenerator: r"members the code reads by number: rows\[2\]",
    PartOfComprehension: r"members the code reads by number: .*\[2:\]",
    Growing: "changes from one iteration to the next",
    OldView: "a view of a tensor that it writes to",
}

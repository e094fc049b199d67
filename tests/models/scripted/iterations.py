"""Numerical iterations and recurrences: prefix sums, Newton, cells in loops, nested loops and branches."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: SIM108

import torch
from torch import Tensor, nn

from .records import EVERYWHERE, Record, scripted

RECORDS: list[Record] = []

torch.manual_seed(1)
_ROWS = {"x": {0: "rows"}}


@scripted(RECORDS, torch.randn(3, 4), further=[(torch.randn(7, 4),), (torch.randn(1, 4),)], dynamic=_ROWS)
def prefix_sums_in_place(x: Tensor):
    y = torch.zeros_like(x)
    total = torch.zeros(x.shape[1:])
    for i in range(x.shape[0]):
        total += x[i]
        y[i] = total
    return y


@scripted(
    RECORDS, torch.randn(8), further=[(torch.randn(13),), (torch.randn(1),), (torch.randn(2),)], dynamic=_ROWS
)
def prefix_sums_by_doubling(x: Tensor):
    """Hillis and Steele: the shift doubles until it exceeds the length."""
    shift = 1
    while shift < x.size(0):
        x = torch.cat([x[:shift], x[shift:] + x[:-shift]])
        shift *= 2
    return x


@scripted(RECORDS, torch.rand(3) + 1, further=[(torch.rand(3) * 100 + 1,), (torch.ones(3),)])
def newton_until_converged(x: Tensor):
    y = x
    n = 0
    while bool((y * y - x).abs().max() > 1e-4):
        y = 0.5 * (y + x / y)
        n += 1
    return y, n


@scripted(RECORDS, 2.0, 1e-6, further=[(200.0, 1e-4), (1.0, 0.5), (0.25, 1e-9)])
def newton_of_floats(x: float, tolerance: float):
    y = x
    for n in range(50):
        step = (y * y - x) / (2 * y)
        y -= step
        if abs(step) < tolerance:
            return torch.tensor(y), n
    return torch.tensor(y), 50


@scripted(RECORDS, 48, 18, further=[(7, 13), (100, 75), (5, 0)])
def greatest_common_divisor(a: int, b: int):
    while b != 0:
        a, b = b, a % b
    return torch.tensor(a)


@scripted(RECORDS, 27, further=[(1,), (2,), (97,)])
def collatz(n: int):
    steps = 0
    highest = n
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
        highest = max(highest, n)
    return torch.tensor([steps, highest])


@scripted(
    RECORDS, torch.ones(3), 4, further=[(torch.ones(3) * 9, 3), (-torch.ones(3), 7), (torch.ones(3), 0)]
)
def returns_from_nested_loops(x: Tensor, k: int):
    if k > 6:
        return x + 1
    for i in range(k):
        x = x * 1.5
        for j in range(i):
            x = x + j
            if bool(x.sum() > 20):
                return x * 100 + j
        if bool(x.sum() > 15):
            return x
    return x - 1


@scripted(
    RECORDS, torch.ones(3), 4, further=[(torch.ones(3) * 9, 3), (-torch.ones(3), 17), (torch.ones(3), 0)]
)
def nested_if_in_while_in_for(x: Tensor, k: int):
    total = 0
    for i in range(k):
        j = i
        while j > 0:
            if j % 3 == 0:
                j -= 2
                if bool(x.sum() > 0):
                    x = x - j
                    continue
                x = x + 1
            elif bool(x[0] > 5):
                break
            else:
                x = x + 0.5 * j
            j -= 1
            total += 1
    return x, total


@scripted(
    RECORDS, torch.randn(6), further=[(torch.randn(9),), (-torch.ones(1),), (torch.ones(4),)], dynamic=_ROWS
)
def continue_and_break(x: Tensor):
    total = torch.zeros(())
    seen = 0
    for i in range(x.size(0)):
        if bool(x[i] < 0):
            continue
        if bool(total > 3):
            break
        total = total + x[i]
        seen += 1
    return total, seen


class LSTMUntilQuiet(nn.Module):
    """An LSTM cell that runs while its output is loud, and at most so often."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor, floor: float, limit: int) -> tuple[Tensor, Tensor, int]:
        h = torch.zeros(x.size(0), 4)
        c = torch.zeros(x.size(0), 4)
        steps = 0
        while bool(x.abs().mean() > floor) and steps < limit:
            h, c = self.cell(x, (h, c))
            x = x * 0.6 + 0.1 * h
            steps += 1
        return h, c, steps


class GRUWithEarlyExit(nn.Module):
    """Two cells over the time steps; the outputs are collected until one is large."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.cells = nn.ModuleList([nn.GRUCell(4, 4), nn.GRUCell(4, 4)])

    def forward(self, x: Tensor, limit: float) -> tuple[Tensor, list[Tensor]]:
        states = [torch.zeros(x.size(1), 4) for _ in self.cells]
        outputs = []
        for t in range(x.size(0)):
            y = x[t]
            for i, cell in enumerate(self.cells):
                states[i] = cell(y, states[i])
                y = states[i]
            outputs.append(y)
            if bool(y.abs().max() > limit):
                break
        return torch.stack(outputs), states


_LSTM = LSTMUntilQuiet().eval()
_GRU = GRUWithEarlyExit().eval()
RECORDS += [
    Record(
        "lstm_until_quiet",
        _LSTM,
        (torch.randn(2, 4), 0.3, 10),
        [(torch.randn(3, 4) * 5, 0.2, 20), (torch.randn(1, 4), 5.0, 10), (torch.randn(1, 4) * 100, 0.1, 2)],
        dynamic={"x": {0: "batch"}},
    ),
    Record(
        "gru_with_early_exit",
        _GRU,
        (torch.randn(3, 2, 4), 2.0),
        [(torch.randn(8, 2, 4) * 3, 0.5), (torch.randn(1, 2, 4), 0.1)],
        dynamic={"x": {0: "time"}},
    ),
]


@scripted(
    RECORDS, torch.randn(3, 3), 3, further=[(torch.randn(3, 3), 0), (torch.randn(3, 3), 6)], opsets=EVERYWHERE
)
def matrix_power(x: Tensor, n: int):
    result = torch.eye(3)
    for _ in range(n):
        result = result @ x
    return result


@scripted(RECORDS, torch.randn(4), further=[(-torch.rand(4),), (torch.rand(4),)], opsets=EVERYWHERE)
def branch_in_a_branch(x: Tensor):
    if bool(x.sum() > 0):
        if bool(x[0] > 0.3):
            return x * 2
        return x * 3
    return x - 1


@scripted(RECORDS, 3, torch.ones(2), further=[(0, torch.ones(2)), (9, torch.ones(2))])
def grows_each_iteration(n: int, x: Tensor):
    result = torch.zeros([0])
    for i in range(n):
        result = torch.cat([result, x * i])
        x = torch.cat([x, x[:1]])
    return result, result.size(0), x.shape[0]


@scripted(RECORDS, torch.rand(4, 4), 0.5, further=[(torch.rand(4, 4), 2.0), (torch.rand(4, 4) * 3, 0.1)])
def power_iteration(a: Tensor, tolerance: float):
    v = torch.ones(4)
    last = torch.zeros(())
    value = v @ a @ v
    while abs(float(value - last)) > tolerance * 1e-3:
        v = a @ v
        v = v / v.norm()
        last = value
        value = v @ a @ v
    return value


@scripted(RECORDS, torch.randn(6), further=[(torch.randn(6).sort()[0],), (torch.arange(6.0).flip(0),)])
def bubble_sort(x: Tensor):
    y = x.clone()
    swapped = True
    while swapped:
        swapped = False
        for i in range(5):
            if bool(y[i] > y[i + 1]):
                t = y[i].clone()
                y[i] = y[i + 1]
                y[i + 1] = t
                swapped = True
    return y


@scripted(
    RECORDS,
    torch.randn(5),
    0.3,
    further=[(torch.rand(9), 5.0), (torch.rand(1), -1.0)],
    dynamic={"x": {0: "n"}},
)
def binary_search(x: Tensor, value: float):
    ordered = x.sort()[0]
    low = 0
    high = ordered.size(0)
    while low < high:
        middle = (low + high) // 2
        if float(ordered[middle]) < value:
            low = middle + 1
        else:
            high = middle
    return torch.tensor(low)


@scripted(
    RECORDS,
    torch.randn(3),
    True,
    2,
    0.5,
    further=[(torch.randn(3), False, 5, 1.5), (torch.randn(3), True, 0, -2.0)],
)
def carries_of_each_kind(x: Tensor, flag: bool, n: int, f: float):
    pair = (x, 1)
    count = 0
    label = 1.0
    for i in range(n):
        flag = not flag
        f = f * 2 if flag else f - 1
        count += int(flag) + i
        pair = (pair[0] + f, pair[1] * 2)
        label = label / 2
    return pair, flag, f, count, label

"""Scripted programs with lists of unknown length, against eager, on other paths than the example's."""

# ruff: noqa: UP006, UP035 (TorchScript knows lists by this name)

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, List

import pytest
import torch
from torch import Tensor, nn

import opsetta

from .records import HIGHEST, floats

OPSETS = (7, 9, 11, 13, 16, 18, 21, 24, HIGHEST)
QUICK = (9, 11, 13, HIGHEST)
X = torch.tensor([1.0, 2.0, 3.0])


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A scripted function or module, and calls of it; the first is the example."""

    scripted: Any
    calls: tuple[tuple[Any, ...], ...]
    first: int = 7
    dynamic: Any = None


PROGRAMS: dict[str, Program] = {}


def program(*calls: tuple[Any, ...], first: int = 7) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        PROGRAMS[function.__name__] = Program(torch.jit.script(function), calls, first)
        return function

    return register


def counts(*numbers: int) -> list[tuple[Tensor, int]]:
    return [(X, number) for number in numbers]


@program(*counts(3, 1, 6))
def growing(x: Tensor, n: int):
    out: List[Tensor] = []
    for _ in range(n):
        x = x * 2
        out.append(x)
    return torch.stack(out), torch.stack(out, -1), torch.cat(out), len(out), out[-1]


@program(*counts(3, 1, 5), first=13)
def elements_of_different_shapes(x: Tensor, n: int):
    out = [x]
    for i in range(n):
        out.append(torch.cat([x, x])[: i + 1])
    return torch.cat(out), len(out), out[n]


@program(*counts(1, 4, 9))
def early_exit(x: Tensor, n: int):
    out: List[Tensor] = []
    for _ in range(n):
        x = x * 2
        if bool(x.sum() > 60):
            break
        out.append(x)
    return torch.stack(out), len(out)


@program(*counts(1, 4, 9))
def some_iterations_append(x: Tensor, n: int):
    out = [x]
    for i in range(n):
        x = x * 2
        if i % 2 == 1:
            out.append(x)
    return torch.cat(out), len(out)


@program(*counts(1, 4, 0))
def reading_back(x: Tensor, n: int):
    out = [x, x]
    for i in range(n):
        out.append(out[-1] + out[i])
    return torch.stack(out), out[n]


@program(*counts(1, 5, 2))
def list_of_ints(x: Tensor, n: int):
    out: List[int] = []
    for i in range(n):
        if i != 2:
            out.append(i * i)
    total = 0
    for number in out:
        total += number
    return x + total, len(out), torch.tensor(out), sum(out), 4 in out


@program(*counts(4, 7, 1))
def lists_of_floats_and_bools(x: Tensor, n: int):
    seen: List[bool] = []
    values: List[float] = []
    for i in range(n):
        seen.append(i % 3 == 0)
        values.append(float(x[i % 3]))
    count = 0
    for flag, value in zip(seen, values):  # noqa: B905
        if flag and value < 2.5:
            count += 1
    return count, torch.tensor(values), max(values), any(seen), sum(values)


@program(*counts(1, 4, 3), first=8)
def list_as_a_shape(x: Tensor, n: int):
    shape: List[int] = []
    for _ in range(n):
        shape.append(1)
    shape.append(3)
    return x.reshape(shape).sum(), torch.zeros(shape).sum()


@program(*counts(4, 2, 6))
def zip_and_enumerate(x: Tensor, n: int):
    a: List[Tensor] = []
    b: List[Tensor] = []
    for i in range(n):
        a.append(x * i)
        b.append(x + i)
    out: List[Tensor] = []
    for p, q in zip(a, b):  # noqa: B905
        out.append(p * q)
    for i, p in enumerate(a):
        out.append(p + i)
    return torch.stack(out)


@program(*counts(4, 2, 6))
def changes(x: Tensor, n: int):
    items: List[Tensor] = []
    for i in range(n):
        items.append(x * i)
    items[0] = x
    items[-1] = x + 5
    last = items.pop()
    items.insert(0, last)
    items.reverse()
    rest = items[1:]
    items.extend(rest)
    return torch.stack(items), last


@program(*counts(4, 7, 2))
def comprehensions(x: Tensor, n: int):
    ys = [x * i for i in range(n)]
    zs = [y + 1 for y in ys]
    return torch.stack(zs), torch.stack(ys[::2]), torch.stack(ys[1:])


@program((floats(4, 3), 2), (floats(4, 3), 4), (floats(4, 3), 1))
def stack_of_stacks(x: Tensor, n: int):
    out: List[Tensor] = []
    for i in range(n):
        row: List[Tensor] = []
        for j in range(i + 1):
            row.append(x[i] * j)
        out.append(torch.stack(row).sum(0))
    return torch.stack(out, 1)


@program(*counts(2, 4, 3))
def appends_of_an_inner_loop(x: Tensor, n: int):
    out: List[Tensor] = []
    for i in range(n):
        for j in range(i):
            if j % 2 == 0:
                out.append(x + j)
            else:
                out.append(x - j)
    return torch.stack(out)


@program(*counts(1, 4, 3))
def branches_return_lists(x: Tensor, n: int):
    if n > 2:  # noqa: SIM108
        out = [x, x * 2]
    else:
        out = [x * 3]
    out.append(x)
    return torch.stack(out), len(out)


@program(*counts(1, 7, 4))
def list_begun_again(x: Tensor, n: int):
    current: List[Tensor] = []
    best: List[Tensor] = [x]
    for i in range(n):
        if i % 3 == 0:
            current = []
        current.append(x * i)
        if len(current) > len(best):
            best = current[:]
    return torch.stack(best), len(current)


@program(*((floats(7, 3, seed=n), n) for n in (1, 2, 5)))
def list_given_another_name_by_a_loop(x: Tensor, n: int):
    first: List[Tensor] = [x]
    second: List[Tensor] = [x * 2, x * 3]
    for i in range(n):
        if bool(x.sum() > 100):
            second = [x * i]
        first = second
    first.append(x * 9)
    return torch.stack(first), len(first)


@program(*((floats(7, 3, seed=n), n) for n in (3, 5, 9)))
def greedy_decode(w: Tensor, n: int):
    token = torch.zeros(1, dtype=torch.long)
    h = torch.ones(1, 3)
    tokens: List[Tensor] = [token]
    for i in range(n):
        h = torch.tanh(h @ w.t() @ w * 0.1 + i)
        token = (h @ w.t()).argmax(-1)
        tokens.append(token)
        if int(token) == 1:
            break
    return torch.cat(tokens), torch.stack(tokens)


@program(*((floats(5, 5), n) for n in (1, 3, 6)))
def beam_search(w: Tensor, n: int):
    beams: List[Tensor] = [torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.long)]
    scores: List[Tensor] = [torch.zeros(1), torch.zeros(1)]
    for _ in range(n):
        candidates = torch.stack([w[int(beams[0][-1])] + scores[0], w[int(beams[1][-1])] + scores[1]])
        top, chosen = candidates.flatten().topk(2)
        longer: List[Tensor] = []
        for k in range(2):
            from_beam = int(chosen[k]) // w.size(1)
            longer.append(torch.cat([beams[from_beam], (chosen[k] % w.size(1)).reshape(1)]))
        scores = [top[0:1], top[1:2]]
        beams = longer
    return beams[0], beams[1], torch.cat(scores)


def boxes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 4, generator=generator)
    corners[:, 2:] = corners[:, :2] + 0.3 + corners[:, 2:] * 0.3
    return corners, torch.rand(count, generator=generator)


@program(*((*boxes(6, seed), limit) for seed, limit in ((0, 0.3), (1, 0.3), (2, 0.3))))
def non_maximum_suppression(boxes: Tensor, scores: Tensor, limit: float):
    order = scores.argsort(descending=True)
    kept: List[Tensor] = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        rest = order[1:]
        box = boxes[best]
        others = boxes[rest]
        sides = (torch.min(box[2:], others[:, 2:]) - torch.max(box[:2], others[:, :2])).clamp(min=0.0)
        shared = sides[:, 0] * sides[:, 1]
        area = (box[2] - box[0]) * (box[3] - box[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        order = rest[shared / (area + areas - shared) <= limit]
    return torch.stack(kept)


class CellLoop(nn.Module):
    """An LSTM cell over time, which stops where the state grows large."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor):
        h = torch.zeros(x.size(1), 4)
        c = torch.zeros(x.size(1), 4)
        out: List[Tensor] = []
        for i in range(x.size(0)):
            h, c = self.cell(x[i], (h, c))
            if bool(h.abs().max() > 0.6):
                break
            out.append(h)
        return torch.stack(out), h


class CellOverSlices(nn.Module):
    """An LSTM cell over the slices of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor):
        h = torch.zeros(x.size(1), 4)
        c = torch.zeros(x.size(1), 4)
        out: List[Tensor] = []
        for step in x.unbind(0):
            h, c = self.cell(step, (h, c))
            out.append(h)
        return torch.stack(out, 1), h


def scripted(module: nn.Module) -> Any:
    return torch.jit.script(module.eval())


torch.manual_seed(0)
PROGRAMS["cell_loop"] = Program(
    scripted(CellLoop()),
    ((floats(5, 2, 3),), (floats(7, 2, 3, scale=2.0),), (floats(9, 2, 3, scale=4.0),)),
    dynamic=({0: "time"},),
)
PROGRAMS["cell_over_slices"] = Program(
    scripted(CellOverSlices()),
    ((floats(5, 2, 3),), (floats(8, 4, 3),)),
    dynamic=({0: "time", 1: "batch"},),
)


@functools.cache
def captured(name: str) -> opsetta.Program:
    found = PROGRAMS[name]
    return opsetta.export(found.scripted, found.calls[0], opset=HIGHEST, dynamic_shapes=found.dynamic)


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(name, opset, marks=[] if opset in QUICK else [pytest.mark.sweep])
        for name in PROGRAMS
        for opset in OPSETS
    ],
)
def test_program_agrees_with_eager(name: str, opset: int) -> None:
    found = PROGRAMS[name]
    if opset < found.first:
        with pytest.raises(opsetta.UnsupportedOperatorsError) as caught:
            captured(name).lower(opset=opset)
        assert found.first in [operator.first_opset for operator in caught.value.operators]
        return
    lowered = captured(name).lower(opset=opset)
    for call in found.calls:
        lowered.verify(call)

"""Lists of each kind, tuples, dicts and optionals, of known length and of computed length."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: B007, B905, SIM102

from typing import NamedTuple

import torch
from torch import Tensor

from .records import Record, scripted

RECORDS: list[Record] = []
torch.manual_seed(2)
_ROWS = {"x": {0: "rows"}}
_SOME = [(torch.randn(6, 4),), (torch.rand(1, 4),), (-torch.rand(2, 4),)]


@scripted(RECORDS, torch.randn(3, 4), further=_SOME, dynamic=_ROWS)
def list_of_tensors(x: Tensor):
    xs: list[Tensor] = []
    for i in range(x.size(0)):
        if bool(x[i].sum() > 0):
            xs.append(x[i])
        else:
            xs.insert(0, -x[i])
    xs.append(x.sum(0))
    xs.extend([x[0], x[-1]])
    last = xs.pop()
    first = xs.pop(0)
    xs[-1] = xs[-1] * 2
    xs.reverse()
    part = xs[1:]
    copy = list(xs)
    copy.append(last)
    return torch.stack(xs), len(part), torch.cat(copy), first


@scripted(RECORDS, torch.randn(3, 4), further=_SOME, dynamic=_ROWS)
def list_of_ints(x: Tensor):
    ks = [7]
    for i in range(x.size(0)):
        if bool(x[i].sum() > 0):
            ks.append(i * 2)
        else:
            ks.insert(1, -i)
    ks += [3, 1]
    ks.extend(ks[:2])
    ks[0] = 5
    ks[-1] += 10
    found = 3 in ks
    total = sum(ks)
    largest = max(ks)
    popped = ks.pop(-2)
    position = ks.index(3)
    doubled = [k * 2 for k in ks]
    ordered = sorted(ks)
    ks.reverse()
    ks.sort(reverse=True)
    return (
        torch.tensor(ks),
        found,
        total,
        largest,
        popped,
        position,
        torch.tensor(doubled),
        torch.tensor(ordered),
        ks.count(3),
        ks == ordered,
        len(ks + ordered),
        len(ks * 2),
    )


@scripted(RECORDS, torch.randn(3, 4), further=_SOME, dynamic=_ROWS)
def lists_of_floats_and_bools(x: Tensor):
    fs: list[float] = []
    bs: list[bool] = []
    for i in range(x.size(0)):
        f = float(x[i].sum())
        fs.append(f / (i + 1))
        bs.append(f > 0)
    best = max(fs)
    total = 0.0
    for f, b in zip(fs, bs):
        if b:
            total += f
    return torch.tensor(fs), torch.tensor(bs), best, total, any(bs), all(bs), sum(fs)


@scripted(RECORDS, torch.randn(3, 4), further=_SOME, dynamic=_ROWS)
def zip_and_enumerate(x: Tensor):
    xs: list[Tensor] = []
    ks: list[int] = []
    for i, row in enumerate(x):
        if bool(row[0] > 0) or i == 0:
            xs.append(row * 2)
            ks.append(i)
    total = torch.zeros(4)
    for i, (row, k) in enumerate(zip(xs, ks)):
        total = total + row * (k + i)
    for row in xs[::-1]:
        total = total * 0.5 + row
    squares = [row * row for row in xs]
    return total, torch.stack(squares)


@scripted(
    RECORDS, torch.randn(3, 4), further=[(torch.randn(3, 4),), (torch.rand(3, 4),), (-torch.rand(3, 4),)]
)
def lists_of_known_length(x: Tensor):
    a, b, c = x.unbind(0)
    xs = [a, b] + [c] * 2
    xs[1] = xs[1] + xs[-1]
    nested = [[a, b], [c]]
    nested[0].append(c)
    nested[1] = [x_ * 2 for x_ in nested[0]]
    pairs = [(a, 1), (b, 2)]
    pairs.append((c, 3))
    total = torch.zeros(4)
    for t, k in pairs:
        total = total + t * k
    words = ["sum", "max"]
    if "sum" in words:
        total = total + len(words)
    ks = [[1, 2], [3]]
    ks[1].append(4)
    table = torch.tensor(ks)
    return total, torch.stack(nested[0] + nested[1]), table, torch.stack(xs[1:3]), xs[::2]


@scripted(RECORDS, torch.ones(3), further=[(-torch.ones(3),), (torch.zeros(3),)])
def lists_after_branches(x: Tensor):
    xs = [x, x + 1]
    ks = [1, 2]
    fs: list[float] = []
    if bool(x.sum() > 0):
        xs.append(x * 3)
        ks = ks + ks
    else:
        xs[0] = x * 5
        fs.append(0.5)
    ys = xs
    ys.append(x)
    return torch.stack(xs).sum(0), torch.tensor(ks), len(fs), len(xs), torch.cat(ys)


@scripted(RECORDS, torch.ones(3), 2, further=[(-torch.ones(3), 3), (torch.zeros(3), 0), (torch.ones(3), 7)])
def aliased_lists(x: Tensor, n: int):
    """One list under two names, changed in a loop through either."""
    a = [x]
    b = a
    for i in range(n):
        a.append(x + i)
        if i % 2 == 0:
            b.append(x - i)
    holder = {"list": a}
    holder["list"].append(x * 0)
    return torch.stack(b), len(a), len(holder["list"])


class Pair(NamedTuple):
    """Two tensors and a count."""

    first: Tensor
    second: Tensor
    count: int


@scripted(RECORDS, torch.ones(3), 3, further=[(-torch.ones(3), 2), (torch.ones(3) * 9, 5)])
def named_tuples(x: Tensor, n: int):
    pair = Pair(x, x * 2, 0)
    for i in range(n):
        if bool(pair.first.sum() > 5):
            pair = Pair(pair.second, pair.first - 3, pair.count)
        else:
            pair = Pair(pair.first + 1, pair.second, pair.count + 1)
    return pair


@scripted(RECORDS, torch.ones(3), further=[(-torch.ones(3),), (torch.zeros(3),)])
def dicts_of_tensors(x: Tensor):
    d: dict[str, Tensor] = {}
    d["a"] = x
    if bool(x.sum() > 0):
        d["b"] = x * 2
    else:
        d["b"] = x - 1
    d.update({"c": d["a"] + d["b"]})
    numbers = {1: "one", 2: "two"}
    total = torch.zeros(3)
    for key in d:
        total = total + d[key]
    for key, value in d.items():
        d[key] = value + 1
    gone = d.pop("a")
    if "z" in d:
        total = total * 100
    if numbers[1] == "one" and len(numbers) == 2:
        total = total + 1
    return total, gone, list(d.values()), d


@scripted(RECORDS, torch.randn(3, 4), further=_SOME, dynamic=_ROWS)
def optional_of_a_loop(x: Tensor):
    best: Tensor | None = None
    index: int | None = None
    for i in range(x.size(0)):
        if best is None:
            if bool(x[i].sum() > 0):
                best = x[i]
                index = i
        elif bool(x[i].sum() > best.sum()):
            best, index = x[i], i
    if best is None:
        best = torch.zeros(4)
    if index is None:
        index = -1
    return best, torch.tensor(index)


@scripted(RECORDS, torch.ones(3), None, 2.0, further=[(-torch.ones(3), None, 3.0)])
def optional_arguments(x: Tensor, bias: Tensor | None = None, scale: float | None = None):
    if bias is not None:
        x = x + bias
    if scale is None:
        return x
    if bool(x.sum() > 0):
        return x * scale
    return x


@scripted(
    RECORDS,
    torch.arange(5),
    further=[(torch.tensor([4]),), (torch.tensor([9, 2, 2]),)],
    dynamic={"x": {0: "n"}},
)
def tolist_of_ints(x: Tensor):
    ks: list[int] = x.tolist()
    evens: list[int] = []
    for k in ks:
        if k % 2 == 0:
            evens.append(k)
    total = 0
    for k in ks:
        if k == 2:
            continue
        total += k
    return torch.tensor(evens).sum() + total, len(evens), 4 in ks


@scripted(RECORDS, torch.randn(2, 3), further=[(torch.randn(2, 3),)])
def tolist_of_known_size(x: Tensor):
    rows: list[list[float]] = x.tolist()
    total = 0.0
    for row in rows:
        for f in row:
            total = total * 0.5 + f
    return torch.tensor(total), torch.tensor(rows)


@scripted(
    RECORDS,
    torch.randn(5, 2),
    further=[(torch.randn(8, 2),), (torch.randn(1, 2),), (torch.randn(2, 2),)],
    dynamic=_ROWS,
    opsets=(11, 13, 16, 18, 21, 24),
    refused={9: "SplitToSequence begins at opset 11"},
)
def chunks_and_splits(x: Tensor):
    parts = x.split(2)
    total = torch.zeros(2)
    for part in parts:
        total = total * 2 + part.sum(0)
    chunks = torch.chunk(x, 3)
    n = 0
    for chunk in chunks:
        n = n * 10 + chunk.size(0)
    return total, n, len(parts), parts[-1].shape[0]


@scripted(RECORDS, torch.ones(3), 2, further=[(-torch.ones(3), 3), (torch.zeros(3), 0)])
def tuples_in_a_list(x: Tensor, n: int):
    state: list[tuple[Tensor, int]] = [(x, 0), (x * 2, 1)]
    for i in range(n):
        first, k = state[0]
        state[0] = (first + state[1][0], k + 1)
        state[1] = (first * 0.5, k)
    return state[0][0], state[1][0], state[0][1], state[1][1]


@scripted(RECORDS, torch.ones(2), 3, further=[(torch.ones(2), 6), (torch.ones(2), 1)])
def dequeue_in_a_while(x: Tensor, n: int):
    queue = [n]
    total = 0
    while len(queue) > 0:
        k = queue.pop(0)
        total += k
        if k > 1:
            queue.append(k // 2)
            queue.append(k - k // 2 - 1)
    return torch.tensor(total) + x


@scripted(RECORDS, torch.ones(2), False, 3, further=[(torch.ones(2), True, 3), (-torch.ones(2), False, 0)])
def two_names_left_by_a_break(x: Tensor, flag: bool, n: int):
    """What a nested break leaves unset in the other branch is still one list under both names."""
    items = [x * 1]
    alias = items
    for i in range(n):
        if x.dim() > 5:
            items, alias = alias, items
        if flag:
            if x.dim() > 0:
                break
        alias[0] = x + 5
    return items[0]


@scripted(RECORDS, torch.ones(2))
def first_pair_of_a_dict(x: Tensor):
    """TorchScript's popitem takes the first pair."""
    d: dict[str, Tensor] = {"b": x}
    d["a"] = x * 2
    d["c"] = x * 3
    key, value = d.popitem()
    return value, d.get("b", x * 100), d["c"], d.setdefault("e", x * 5), len(d), len(key)

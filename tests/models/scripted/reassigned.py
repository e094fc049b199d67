"""Containers and numbers that loops and branches reassign, early returns, tensors made of constants."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: B007, RUF057, SIM108

import torch
from torch import Tensor

from .records import Record, scripted

RECORDS: list[Record] = []
torch.manual_seed(9)
X = torch.tensor([0.5, -1.0, 2.0])
_COUNTS = [(X, n) for n in (0, 1, 3, 6)]


@scripted(RECORDS, X, 4, further=_COUNTS)
def dict_replaced_in_a_loop(x: Tensor, n: int):
    entries = {"a": x, "b": x * 2}
    for i in range(n):
        entries = {"a": entries["b"] + i, "b": entries["a"]}
        if bool(entries["a"].sum() > 9):
            break
    return entries["a"], entries["b"]


@scripted(RECORDS, X, 4, further=_COUNTS)
def dict_changed_then_replaced(x: Tensor, n: int):
    entries = {"a": 1, "b": 2}
    for i in range(n):
        if entries["a"] > 4:
            return x + entries["b"]
        entries["a"] = entries["a"] + i
        other = {"a": entries["b"], "b": entries["a"]}
        if i > 2:
            entries = other
    return x + entries["a"] * 10 + entries["b"]


@scripted(RECORDS, X, 4, further=_COUNTS)
def dicts_in_a_replaced_list(x: Tensor, n: int):
    rows = [{"a": x}, {"a": x + 1}]
    for i in range(n):
        rows = [{"a": rows[1]["a"] * 2}, {"a": rows[0]["a"]}]
    return rows[0]["a"], rows[1]["a"]


@scripted(RECORDS, X, 4, further=_COUNTS)
def optional_dict(x: Tensor, n: int):
    entries: dict[str, Tensor] | None = None
    for i in range(n):
        if entries is None:
            entries = {"a": x}
        else:
            entries = {"a": entries["a"] * 2}
    if entries is not None:
        return entries["a"]
    return x - 1


@scripted(RECORDS, X, 4, further=_COUNTS)
def tuple_and_optional_with_continue(x: Tensor, n: int):
    state = (x, 1, 2.5)
    found: Tensor | None = None
    for i in range(n):
        if i == 3:
            break
        state = (state[0] * 2, state[1] + i, state[2] / 2)
        if state[1] > 2:
            found = state[0]
            continue
        x = x - 1
    if found is None:
        found = x
    return state, found, x


@scripted(RECORDS, X, 4, further=[(X, n) for n in (1, 2, 6, 7)])
def loop_that_returns_at_once_or_never_runs(x: Tensor, n: int):
    entries = {"a": x * 3, "b": x - 7}
    for i in range(1, n % 6):
        if len(entries) == 2:
            return n, entries
        entries = {"a": x, "b": x}
    return n, entries


@scripted(RECORDS, X, 4, further=_COUNTS)
def changed_in_one_branch_and_replaced_in_the_other(x: Tensor, n: int):
    entries = {"a": x, "b": x + 1}
    rows = [x, x + 1]
    if n > 2:
        entries["a"] = x * 2
        rows.append(x * 2)
    else:
        entries = {"a": x * 5, "b": x * 7}
        rows = [x * 5]
        rows.append(x)
    return entries["a"], entries["b"], torch.stack(rows).sum(0)


@scripted(RECORDS, X, 4, further=_COUNTS)
def changed_and_assigned_in_a_loop(x: Tensor, n: int):
    entries, others = {"a": x}, {"a": x * 5}
    for i in range(n):
        others["a"] = others["a"] + 1
        entries = others
    return entries["a"]


@scripted(RECORDS, X, 4, further=_COUNTS)
def written_constants(x: Tensor, n: int):
    table = torch.tensor([1, 2, 3, 4]).to(torch.float32).clone()
    first = table[0]
    if n > 1:
        table.view(2, 2)[1] += 1
    table[0] = 5.0
    count = torch.tensor(3)
    count += 1
    steps = torch.tensor(n)
    steps += 1
    return table.sum() + x, first, x * int(count), x * int(steps)


@scripted(RECORDS, X, 4, further=[(X, n) for n in (0, -3, 13, 255)])
def bits_and_rounding(x: Tensor, n: int):
    number = float(x[0]) * n
    return (
        n & 3,
        n & 12,
        n | 5,
        n ^ 9,
        n << 2,
        n >> 1,
        round(number),
        round(n),
        min(number, 1.5),
        n << (n & 7),
    )


@scripted(RECORDS, X, 4, further=[(X, n) for n in (0, 1, 9)], opsets=(10, 13, 18, 24))
def computed_steps(x: Tensor, n: int):
    if n > 1:
        x = x[:: n // 2]
    return x, x.shape[0], sorted([n, 3, 2 * n])


@scripted(RECORDS, X, further=[(-X,), (X - 5,)])
def lists_swapped_then_changed(x: Tensor):
    first, second = [x, x + 1], [x + 2, x + 3]
    if bool(x.sum() > 0):
        first, second = second, first
    first[0] = x + 50
    return first[0], second[0], first[1]


@scripted(RECORDS, X, 4, further=_COUNTS)
def constants_made_anew_and_written(x: Tensor, n: int):
    total = x * 0
    for i in range(n):
        inner = torch.tensor([4.0, 5.0, 6.0])
        for j in range(n):
            inner[0] += 1
        total = total + inner
    return total


@scripted(RECORDS, X, 4, further=_COUNTS)
def constant_under_two_names(x: Tensor, n: int):
    total = x * 0
    for i in range(n):
        first = torch.tensor([1.0, 2.0, 3.0])
        second = first
        if n > 2:
            second = x * 2
        second[1] += 1
        total = total + second + first
    return total

"""Programs that look alike near their example and are not: aliases under conditions, clamped sizes."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: SIM108

import torch
from torch import Tensor

from .records import Record, scripted

RECORDS: list[Record] = []
torch.manual_seed(8)
_SIGNS = [(-torch.ones(3),), (torch.zeros(3),)]
_SIZES = [(torch.randn(n, 3),) for n in (1, 2, 3, 6, 40, 0)]
_ROWS = {"x": {0: "n"}}


@scripted(RECORDS, torch.randn(5, 3), further=_SIZES, dynamic=_ROWS)
def clamped_sizes(x: Tensor):
    a = x[:5].size(0)
    b = x[:32].size(0)
    c = x[-2:].size(0)
    d = x[1:-1].size(0)
    e = x[::3].size(0)
    f = x[3:3].size(0)
    g = x[:1].size(0)
    total = 0
    if a == 5:
        total += 1
    if b == x.size(0):
        total += 10
    if c == 2:
        total += 100
    if d == x.size(0) - 2:
        total += 1000
    if g == 1:
        total += 10000
    if x[:4].size(0) == x[-4:].size(0):
        total += 100000
    return total, a, b, c, d, e, f


@scripted(RECORDS, torch.randn(4, 3), 2, further=[(torch.randn(4, 3), k) for k in (0, 1, 4, 7, -1, -3, -9)])
def clamped_by_numbers(x: Tensor, k: int):
    total = 0
    if x[:k].size(0) == k:
        total += 1
    if x[k:].size(0) == 4 - k:
        total += 10
    if x[k : k + 1].size(0) == 1:
        total += 100
    if min(k, 3) == k:
        total += 1000
    if max(k, 0) == k:
        total += 10000
    return total, x[:k], x[k:], x[k : k + 1]


@scripted(
    RECORDS,
    torch.randn(4),
    torch.randn(4),
    further=[
        (torch.randn(1), torch.randn(6)),
        (torch.randn(6), torch.randn(1)),
        (torch.randn(1), torch.randn(1)),
        (torch.randn(0), torch.randn(1)),
    ],
    dynamic={"x": {0: "n"}, "y": {0: "m"}},
)
def broadcast_sizes(x: Tensor, y: Tensor):
    z = x + y
    total = 0
    if z.size(0) == x.size(0):
        total += 1
    if z.size(0) == y.size(0):
        total += 10
    if x.numel() * y.numel() == x.numel() ** 2:
        total += 100
    return z, total


@scripted(
    RECORDS,
    torch.randn(2, 3),
    further=[(torch.randn(3, 3),), (torch.randn(1, 3),), (torch.randn(6, 3),)],
    dynamic=_ROWS,
)
def coinciding_products(x: Tensor):
    """At the example n * n, n + n and 2 ** n are one."""
    n = x.size(0)
    outer = (x[:, 0, None] * x[None, :, 0]).flatten()
    joined = torch.cat([x[:, 0], x[:, 1]])
    total = 0
    if outer.size(0) == joined.size(0):
        total += 1
    if outer.size(0) == 4:
        total += 10
    if joined.size(0) == n * 2:
        total += 100
    if outer.size(0) == n * n:
        total += 1000
    if outer.size(0) == 2**n:
        total += 10000
    return total, outer, joined


@scripted(
    RECORDS,
    torch.randn(4, 3),
    0.0,
    further=[(torch.randn(4, 3), 5.0), (torch.rand(4, 3), 0.0), (torch.randn(4, 3), -5.0)],
)
def sizes_of_data(x: Tensor, floor: float):
    a = x[x > floor]
    b = x.flatten()[(x < 0).flatten()]
    where = (x > floor).nonzero()
    total = 0
    if a.size(0) == b.size(0):
        total += 1
    if where.size(0) == a.numel():
        total += 10
    if a.size(0) == 3:
        total += 100
    if a.size(0) == 0:
        total += 1000
    return total, a, where


@scripted(
    RECORDS,
    torch.randn(4, 3),
    further=[(torch.randn(1, 3),), (torch.randn(7, 3),)],
    dynamic=_ROWS,
    opsets=(13, 16, 18, 21, 24),
)
def lists_of_different_sizes(x: Tensor):
    xs: list[Tensor] = []
    for i in range(x.size(0)):
        xs.append(x[: i + 1])
    total = 0
    for a in xs:
        for b in xs:
            if a.size(0) == b.size(0):
                total += 1
    if xs[0].size(0) == xs[-1].size(0):
        total += 1000
    return total, xs[-1]


@scripted(RECORDS, torch.ones(3), further=_SIGNS)
def lists_chosen_and_read(x: Tensor):
    xs = [x]
    zs = [x * 2, x]
    if bool(x.sum() > 0):
        ys = xs
    else:
        ys = zs
    return len(ys), ys[0], len(xs)


@scripted(RECORDS, torch.ones(3), 3, further=[(torch.ones(3), 0), (torch.ones(3), 6)])
def queue_replaced_and_changed(x: Tensor, n: int):
    queue = [n]
    total = 0
    while len(queue) > 0:
        k = queue.pop()
        total += k
        further: list[int] = []
        if k > 1:
            further.append(k - 2)
        if k > 3:
            further.append(k // 2)
        queue = further + queue
    return torch.tensor(total)


@scripted(RECORDS, torch.ones(3), 3, further=[(torch.ones(3), 0), (-torch.ones(3), 6)])
def lists_in_carried_tuples(x: Tensor, n: int):
    xs: list[Tensor] = [x]
    state = (xs, 0)
    for i in range(n):
        state[0].append(x * i)
        if bool(x.sum() > 0):
            state = (state[0], state[1] + i)
    return torch.stack(state[0]), state[1], len(xs)


@scripted(RECORDS, torch.ones(3), 3, further=[(torch.ones(3), 0), (-torch.ones(3), 6)])
def list_in_a_dict(x: Tensor, n: int):
    groups: dict[str, list[Tensor]] = {"a": [], "b": [x]}
    for i in range(n):
        if bool(x.sum() > i):
            groups["a"].append(x * i)
        else:
            groups["b"].append(x - i)
    return len(groups["a"]), torch.stack(groups["b"])


@scripted(RECORDS, torch.ones(3), further=_SIGNS)
def same_list_in_both(x: Tensor):
    xs = [x]
    d = {"a": xs}
    if bool(x.sum() > 0):
        ys = [x, x * 2]
        d["a"] = ys
    else:
        ys = [x * 3]
        d["a"] = ys
    ys.append(x - 1)
    return torch.stack(d["a"]), len(ys), len(xs)


@scripted(RECORDS, torch.randn(1, 3, 1), further=[(torch.randn(1, 3, 1),)])
def squeezes_of_known_sizes(x: Tensor):
    return x.squeeze(), x.squeeze(0), x.squeeze(1), x.squeeze(-1).unsqueeze(1)


@scripted(RECORDS, torch.ones(3), 2, further=[(torch.ones(3), 0), (torch.ones(3), 5)])
def tensor_of_unset_value(x: Tensor, n: int):
    """What is set in the loop alone is read after it, where it ran."""
    last: tuple[Tensor, int] | None = None
    for i in range(n):
        last = (x * i, i)
    if last is not None:
        y, k = last
        return y + k
    return x - 1


@scripted(
    RECORDS,
    torch.ones(3),
    2,
    1,
    further=[(torch.ones(3), 3, 0), (torch.ones(3), 5, 4), (torch.ones(3), 0, 0)],
)
def swaps(x: Tensor, n: int, m: int):
    a, b, c = x, x * 2, x * 3
    for i in range(n):
        a, b, c = b, c, a
        if i == m:
            a, b = b, a
        xs = [a, b]
        xs[0], xs[1] = xs[1], xs[0]
        a = xs[0] + 0 * xs[1]
    return a, b, c


@scripted(RECORDS, torch.ones(3), 2, further=[(torch.ones(3), 0), (torch.ones(3), 4)])
def views_carried_over(x: Tensor, n: int):
    """A view from before the loop sees what the loop writes; one from inside it, what comes after."""
    y = x.clone()
    head = y[:2]
    tail = y[1:]
    for i in range(n):
        head += i
        tail = y[i % 2 : i % 2 + 2]
        tail *= 2
    tail[0] = -1.0
    return y, head, tail

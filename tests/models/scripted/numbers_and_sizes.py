"""Python numbers that are computed, and sizes: arithmetic, math functions, shapes built of lists."""

# TorchScript's forms of a thing are the matter here.
# ruff: noqa: RUF005, SIM108, SIM201

import math

import torch
from torch import Tensor

from .records import EVERYWHERE, Record, scripted

RECORDS: list[Record] = []
torch.manual_seed(7)


@scripted(RECORDS, 7, 2, further=[(-7, 2), (7, -2), (-7, -2), (6, 3), (0, -5), (-6, 3)])
def division_of_ints(a: int, b: int):
    return (
        torch.tensor([a // b, a % b, a + b, a - b, a * b, -a, abs(a), max(a, b), min(a, b)]),
        a / b,
        int(a / b),
        a // b * b + a % b == a,
        a > b and b > 0,
        not (a == b) or a < 0,
    )


@scripted(
    RECORDS,
    torch.randn(3, 2),
    5,
    further=[(torch.randn(size, 2), n) for size, n in ((1, 1), (2, -1), (5, -3), (1, 2))],
    dynamic={"x": {0: "rows"}},
    opsets=EVERYWHERE,
)
def one_divided(x: Tensor, n: int):
    """onnxruntime makes 1 / x * y into y / x, of integers too."""
    by = 1 % x.size(0)
    return torch.cat([x[by:], x[:by]]), 1 // x.size(0) * n, 1 // n * 7, 1 % n


@scripted(RECORDS, torch.randn(3), opsets=EVERYWHERE)
def powers_of_known_numbers(x: Tensor):
    """The lowering knows what these computed numbers are."""
    zero = int(torch.arange(4)[0])
    three = int(torch.arange(4)[3])
    return x > (zero % 5.0 - 2.0) ** 2, (three * 1.5) ** 3, three**4, zero**0, three**1, (zero - 3) ** 3


@scripted(RECORDS, 7.5, 2.0, further=[(-7.5, 2.0), (7.25, -2.5), (-7.75, -2.0), (0.5, 3.0)])
def division_of_floats(a: float, b: float):
    whole = math.floor(a) + math.ceil(b) + int(a)
    return (
        torch.tensor([a // b, a % b, a / b, float(whole), abs(a), a * 3, max(a, b)]),
        whole,
        int(a) % 4,
        bool(a),
    )


@scripted(RECORDS, 0.5, 4, further=[(0.25, 9), (0.9, 1)])
def math_functions(f: float, n: int):
    y = math.sqrt(n) + math.exp(f) + math.log(n) + math.sin(f) + math.cos(f) + math.tanh(f) + f**2 + n**0.5
    z = math.pow(f, 2.0) + 2.0**n + math.pi
    return torch.tensor([y, z]), n**2, f * n


@scripted(
    RECORDS,
    torch.randn(2, 3, 4),
    further=[(torch.randn(5, 1, 4),), (torch.randn(1, 7, 4),), (torch.randn(1, 1, 4),)],
    dynamic={"x": {0: "b", 1: "t"}},
)
def shapes_of_lists(x: Tensor):
    shape = x.shape[:-1] + [2, 2]
    y = x.view(shape)
    z = x.reshape([x.size(0) * x.size(1), -1])
    w = torch.zeros(list(x.shape[1:]) + [1])
    sizes = list(x.shape)
    sizes[-1] = 1
    u = torch.ones(sizes)
    n, t, c = x.shape
    flat = x.flatten(1).unflatten(1, [t, c])
    return (
        y,
        z,
        w,
        u,
        flat,
        x.expand(3, n, t, c).sum(0),
        x.numel() // n,
        y.dim(),
        z.view(-1, t * c // 2).shape[0],
    )


@scripted(
    RECORDS,
    torch.randn(5, 4),
    further=[(torch.randn(8, 4),), (torch.randn(1, 4),), (torch.randn(3, 4),)],
    dynamic={"x": {0: "n"}},
)
def sizes_decide(x: Tensor):
    n = x.size(0)
    half = n // 2
    if n % 2 == 1:
        x = torch.cat([x, x[-1:]])
    a = x[: x.size(0) // 2]
    b = x[x.size(0) // 2 :]
    if a.size(0) == b.size(0):
        y = a + b
    else:
        y = a - 1000
    k = 0
    while 2**k < n:
        k += 1
    if half > 2 or n == 1:
        y = y * 2
    return y, half, k, x[:3].size(0), x[1:].size(0), x[::2].shape[0]


@scripted(RECORDS, torch.randn(4), further=[(torch.randn(4) * 5,), (torch.zeros(4),)])
def numbers_from_tensors(x: Tensor):
    f = float(x.sum())
    i = int(x[0].item() * 10)
    b = bool(x.max() > 1)
    total = x.sum().item()
    y = torch.full([3], f) + i
    if b:
        y = y * 2
    return y, torch.tensor([i, 3, int(b)]), torch.tensor([f, 1.0]), total, torch.tensor([[i, 1], [2, i]])


@scripted(
    RECORDS,
    torch.randn(3, 4),
    torch.tensor([2, 3]),
    further=[(torch.randn(3, 4), torch.tensor([0, 1])), (torch.randn(3, 4), torch.tensor([-1, 4]))],
)
def tensors_as_bounds(x: Tensor, bounds: Tensor):
    low = int(bounds[0])
    high = int(bounds[1])
    part = x[:, low:high]
    return part, part.size(1), x[low], x.select(1, low), x[:low].sum()


@scripted(RECORDS, torch.randn(3, 4), 2, 1.5, True, further=[(torch.randn(3, 4), -3, 0.5, False)])
def dtypes(x: Tensor, k: int, f: float, b: bool):
    i = x.to(torch.int64)
    return (
        x * k,
        i * f,
        i * k,
        i / k,
        i + b,
        x.double() * f,
        (x > f) & (x < 2),
        i // k,
        i % k,
        x**k,
        k - i,
        f / (x.abs() + 1),
        torch.where(x > 0, x, x * f),
        torch.arange(k * k),
        torch.full([2], k),
        torch.full([2], f),
        torch.zeros([k * k], dtype=torch.int32),
        x.type_as(i),
        torch.tensor(k, dtype=torch.float32),
        i.float().dtype == x.dtype,
    )


@scripted(
    RECORDS,
    torch.randn(6, 2),
    2,
    further=[(torch.randn(9, 2), 4), (torch.randn(6, 2), 7)],
    dynamic={"x": {0: "n"}},
)
def slices_of_computed_bounds(x: Tensor, k: int):
    a = x[:k]
    b = x[k:]
    c = x[-k:]
    d = x[k - 1 : k + 2]
    if a.size(0) == k:
        y = a.sum() + 1
    else:
        y = a.sum() - 1
    return a, b, c, d, y, torch.cat([a, b]), x[:4].size(0) == 4


@scripted(
    RECORDS,
    torch.randn(4, 3),
    torch.randn(4, 3),
    further=[
        (torch.randn(1, 3), torch.randn(5, 3)),
        (torch.randn(5, 3), torch.randn(1, 3)),
        (torch.randn(2, 3), torch.randn(2, 3)),
    ],
    dynamic={"x": {0: "n"}, "y": {0: "m"}},
)
def sizes_that_broadcast(x: Tensor, y: Tensor):
    z = x + y
    if z.size(0) == x.size(0):
        return z * 2, z.size(0)
    return z, z.size(0)


@scripted(
    RECORDS,
    torch.randn(1, 3, 8, 8),
    further=[(torch.randn(2, 3, 7, 9),), (torch.randn(1, 3, 3, 3),), (torch.randn(1, 3, 11, 4),)],
    dynamic={"x": {0: "n", 2: "h", 3: "w"}},
)
def sizes_of_pooling(x: Tensor):
    y = torch.nn.functional.max_pool2d(x, 2, ceil_mode=True)
    z = torch.nn.functional.avg_pool2d(x, 3, 2, 1)
    same = y.size(2) == z.size(2)
    if y.size(3) == z.size(3) and same:
        y = y + z
    return y, z, same, x.size(2) // 2 == y.size(2)


@scripted(RECORDS, torch.randn(2, 8), 3, further=[(torch.randn(2, 8), 5), (torch.randn(2, 8), 0)])
def range_with_steps(x: Tensor, n: int):
    total = x.sum()
    for i in range(1, n, 2):
        total = total + i
    for i in range(n, -1, -2):
        total = total * 0.5 + i
    ks: list[int] = []
    for i in range(0, x.size(1), 3):
        ks.append(i + n)
    return total, torch.tensor(ks)


@scripted(
    RECORDS,
    torch.randn(3, 4),
    further=[(torch.randn(5, 4),), (torch.randn(1, 4),)],
    dynamic={"x": {0: "n"}},
    opsets=(7, 10, 13),
)
def a_part_beside_the_whole(x: Tensor):
    """A part of the rows and all of them, which must not share a buffer in onnxruntime."""
    y = x * 2
    last = y[-1] * 1
    return (y + last).flip(0).exp().sum(0)


@scripted(
    RECORDS,
    torch.tensor([-2.5, 0.5]),
    further=[(torch.tensor([1.5, 2.5]),), (torch.tensor([8.0, 1e-3]),)],
    opsets=(7, 13, 24),
)
def functions_of_one_item(x: Tensor):
    """TorchScript gives functions of `x.item()` in single precision, those of a float in double."""
    a = abs(x.sum().item() * 1.1)
    r, d = math.sqrt(a), math.sqrt(float(a))
    return r, d, r == d, math.log1p(a), -(a * 1.0), math.floor(a), r**2


@scripted(
    RECORDS,
    1.5,
    2.5,
    2,
    further=[(2.5, -1.0, -3), (math.nan, 1.0, 2), (1.0, math.nan, 2), (math.inf, -math.inf, 9)],
    opsets=(7, 8, 9, 12, 24),
)
def extremes_of_floats(a: float, b: float, n: int):
    return min(a, b), max(a, b), min(float(n), b), max(0.5, a), min(n, 3), max([a, b, 0.5])

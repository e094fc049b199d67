"""Methods of lists, dicts and strings, and Python's arithmetic, in TorchScript: one program for each."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import opsetta


def lists(x: Tensor):
    n = x.size(0)
    a, b = [3, 1, 2, 1] * 2, [n, 2]
    a.remove(1)
    b *= 2
    b += [5]
    b.remove(5)
    c = a.copy()
    c.reverse()
    c.extend([4, n])
    d = [1.0]
    d.clear()
    part = a[1:4:2]
    a.sort(reverse=True)
    positions = list(range(n))
    total = a.index(2) + a.count(1) * 10 + [n, 9].index(9) + len(d) + part[1] + sorted([5, 4])[0] + c[0]
    if n in b and [n, 2] == b[:2] and any([n > 1, False]) and all([n > 0, True]):
        total += sum([n, 2]) + max([n, 3]) + b[3]
    return x * total + positions[-1] + len(list(range(3)))


def dicts(x: Tensor):
    first = {"a": 1, "b": 2}
    key, value = first.popitem()
    second = {1: 2.0, 2: 3.0}
    result = x * value + second.pop(1) + second.get(5, 7.0) + second.setdefault(9, 8.0)
    second.update({3: 1.0})
    for number, factor in second.items():
        result = result + number * factor
    third = dict(first)
    first.clear()
    pairs = [("x", 1), ("y", 2)]
    if "b" in third and key == "a":
        result = result + len(first) + dict(pairs)["y"]
    return result


def texts(x: Tensor):
    text = "a_b_c"
    joined, letters = ",".join(["ab", "c"]), list("abc")
    total = (
        text.find("b")
        + text.count("_") * 10
        + len(text.upper().replace("_", "--"))
        + ord("a")
        + len(hex(255))
    )
    if text.startswith("a") and "b" in text and joined == "ab,c":
        total += len(letters)
    return x + total


def numbers(x: Tensor):
    n = x.size(0)
    quotient, remainder = divmod(n, 3)
    of_floats = divmod(float(n), 1.5)
    total = (
        quotient
        + remainder * 10
        + (n << 2)
        + (n >> 1)
        + (n & 3)
        + (n | 8)
        + (n ^ 5)
        + abs(-n)
        + max(True, n > 3)
    )
    result = (
        x + total + of_floats[0] + of_floats[1] + math.ldexp(float(n), 3) + math.log(float(n), 2.0) + n**-1
    )
    for step in range(1, n, 2):
        result = result + step
    for step in range(n, 0, -1):
        result = result * 0.5 + step
    return result + math.modf(3.25)[0] + math.floor(n / 3)


def tensors(x: Tensor):
    nested: list[list[int]] = x[0, :3].reshape(1, 3).to(torch.int64).tolist()
    anything: Any = 3
    ones = torch.ones(3, 4)
    total = nested[0][2] + ones.stride(0) + ones.numel() + int(x[0, 0])
    if isinstance(anything, int) and ones.is_contiguous():
        total += anything
    later = torch.jit.fork(torch.relu, x)
    return torch.jit.wait(later) + total, torch.tensor([x.size(0), 3]), (1, 2.0, x)[1:][1]


@pytest.mark.parametrize("function", [lists, dicts, texts, numbers, tensors])
def test_agrees_at_every_size(function):
    example = torch.arange(24.0).reshape(4, 6) - 7
    program = opsetta.export(
        torch.jit.script(function), (example,), opset=17, dynamic_shapes={"x": {0: "rows"}}
    )
    for rows in (1, 3, 4, 9):
        program.verify((torch.arange(6.0 * rows).reshape(rows, 6) - 7,))

"""What random TorchScript programs are made of: expressions and writes by type, and functions to call."""

MATRIX, ROW, LENGTH, WHOLE = "matrix", "row", "length", "whole"
"""Tensors: (rows, 4) and (4,) of floats, one of unknown length, (4,) of ints."""
TENSORS = (MATRIX, ROW, LENGTH, WHOLE)
INTS, FLOATS, ROWS = "List[int]", "List[float]", "List[Tensor]"
COUNTS, NAMED = "Dict[str, int]", "Dict[str, Tensor]"
PAIR, POINT, MAYBE, MAYBE_INT = "Tuple[int, Tensor]", "Point", "Optional[Tensor]", "Optional[int]"
CONTAINERS = (INTS, FLOATS, ROWS, COUNTS, NAMED, PAIR, POINT, MAYBE, MAYBE_INT)

EXPRESSIONS: dict[str, list[str]] = {
    # {int}, {matrix}, … is an expression of that type; {k} a positive int; {List[int]} a variable.
    "int": [
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} + {k})", "({int} // {k})",
        "({int} % {k})", "({int} // (abs({int}) + 1))", "({int} % (abs({int}) + 2))", "(-{int})",
        "abs({int})",
        "min({int}, {int})", "max({int}, {k})", "max({int}, {int}, {int})", "int({float})", "int({bool})",
        "({int} & {int})", "({int} | {k})", "({int} ^ {int})", "({int} << {k})", "({int} >> {k})",
        "({int} << (abs({int}) % 5))", "(({int} >> (abs({int}) % 4)) & 7)", "int({matrix}.sum())",
        "int({row}.max().item())", "int({whole}.sum())", "{matrix}.size(0)", "{length}.size(0)",
        "{matrix}.shape[1]", "{matrix}.numel()", "len({List[int]})", "len({List[Tensor]})",
        "sum({List[int]})",
        "len({Dict[str, int]})", '{Dict[str, int]}["a"]', '{Dict[str, int]}["b"]', "{Tuple[int, Tensor]}[0]",
        "{Point}.count", "({int} if {bool} else {int})", "math.floor({float})", "math.ceil({float})",
        "int({int} / {k})", "{whole}.dim()", "first({List[int]}, {int})", "int(({int} % 9) ** 2)",
        "{List[int]}.count({int})", "divmod({int}, {k})[1]", "ord({text}[0])",
        "len({text})", "int({whole}.argmax())",
    ],
    "float": [
        "({float} + {float})", "({float} - {float})", "({float} * {float})", "({float} * {int})",
        "({float} / (abs({float}) + 0.5))", "({int} / {k})", "float({int})", "round({float})", "(-{float})",
        "abs({float})", "min({float}, {float})", "max({float}, {float})", "float({row}.max())",
        "float({matrix}.mean())", "({float} % 3.0)", "({float} // 2.0)", "math.sqrt(abs({float}))",
        "({float} if {bool} else {float})", "({float} % 5.0) ** 2", "round({int})", "float({bool})",
        "sum({List[float]})", "math.fabs({float})", "({float} + {int})", "math.tanh({float})",
        "torch.sum({row}).item() * 1.0",
    ],
    "bool": [
        "({int} > {int})", "({int} <= {k})", "({int} == {int})", "({int} != {k})", "({float} < {float})",
        "({float} >= 1.0)", "(not {bool})", "({bool} and {bool})", "({bool} or {bool})", "({bool} == {bool})",
        "({bool} != {bool})", "bool({row}.sum() > {float})", "bool(({matrix} > 0).any())",
        "(len({List[int]}) > 2)", "({int} in {List[int]})", '("a" in {Dict[str, int]})',
        "({Optional[Tensor]} is None)", "({Optional[int]} is not None)", "bool({int})",
        "bool({whole}[0] == 1)",
        "({int} in [1, 2, {int}])", "({bool} & {bool})", "({bool} ^ {bool})", "{matrix}.is_floating_point()",
        '({text} == "a")', "any([{bool}, {bool}])", "(0 < {int} < 5)", "all([{int} > 0, {bool}])",
    ],
    MATRIX: [
        "({matrix} + {matrix})", "({matrix} * {row})", "({matrix} - {float})", "({matrix} + {int})",
        "torch.relu({matrix})", "{matrix}.clone()", "torch.where({matrix} > {float}, {matrix}, {matrix})",
        "({matrix} if {bool} else {matrix})", "(-{matrix})", "{matrix}.abs()", "{matrix}.flip(0)",
        "{matrix}[:, [2, 0, 3, 1]]", "shift({matrix}, {int})", "{matrix}.t().contiguous().t()",
        "torch.stack([{row}, {row}])[0] + {matrix}", "{matrix}.masked_fill({matrix} > {float}, 1.5)",
        "{matrix}.roll(1, 0)", "({matrix} + {row}.sum())",
    ],
    ROW: [
        "({row} + {row})", "({row} * {k})", "({row} - {float})", "{matrix}[0]", "{matrix}[-1]",
        "{matrix}[{int} % {matrix}.size(0) - {matrix}.size(0)]", "{matrix}.sum(0)", "{row}.flip(0)",
        "{whole}.to(torch.float32)", "({row} if {bool} else {row})", "{row}.clone()", "({row} * {int})",
        "torch.cat([{row}[2:], {row}[:2]])", "torch.stack([{row}, {row}]).max(0)[0]",
        "{Tuple[int, Tensor]}[1]",
        "{Point}.value", '{Dict[str, Tensor]}["a"]', '{Dict[str, Tensor]}["b"]', "total({List[Tensor]})",
        "torch.tensor([{float}, {float}, 1.0, {float}], dtype=torch.float32)",
        "{row}.view(2, 2).t().reshape(4)",
        "or_else({Optional[Tensor]}, {row})", "{row}[{whole}.clamp(0, 3)]", "torch.full((4,), {float})",
    ],
    LENGTH: [
        "{row}[{int} % 4:]", "{row}[:{int}]", "{matrix}[:, 0]", "{length} * 2", "{length}[{int}:]",
        "torch.cat([{length}, {row}])[:7]", "{length}[1:]", "{row}[{row} > {float}]", "{length}[:{k}] + 1",
        "torch.zeros(abs({int}) % 5)", "torch.arange({int} % 6).to(torch.float32)",
        "{matrix}.reshape(-1)[:9]",
    ],
    WHOLE: [
        "({whole} + {int})", "({whole} * {k})", "({whole} % {k})", "({row} > {float}).to(torch.int64)",
        "torch.arange(4)", "torch.tensor([{int}, 1, {int}, {k}])", "({whole} & {k})", "({whole} // {k})",
        "({whole} if {bool} else {whole})", "{row}.argsort(stable=True)", "{whole}.clamp(max=5)",
        "({whole} ^ {whole})", "{matrix}.argmax(0)", "{whole}.cumsum(0)",
    ],
    "text": ['"a"', '"b"', '("b" + "a")', '"ab"[:1]', '"Ab".lower()', '"a,b".split(",")[1]'],
    INTS: [
        "[{int}, {int}]", "[{int}]", "{List[int]} + [{int}]", "{List[int]}[1:]", "{List[int]}[:{k}]",
        "[i * 2 for i in {List[int]}]", "sorted({List[int]})", "list(range({int} % 5))",
        "{List[int]}[::2] + [1]",
        "list({Dict[str, int]}.values())", "[{int}] * 2",
    ],
    FLOATS: ["[{float}, {float}]", "{List[float]} + [{float}]", "{List[float]}[:2]", "[{float}]"],
    ROWS: ["[{row}, {row}]", "[{row}]", "{List[Tensor]} + [{row}]", "{List[Tensor]}[:2]",
           "[r * 2 for r in {List[Tensor]}]", "list(torch.stack([{row}, {row}]).unbind(0))"],
    COUNTS: ['{"a": {int}, "b": {int}}', '{"b": {int}, "a": 1}'],
    NAMED: ['{"a": {row}, "b": {row}}', '{"a": {Dict[str, Tensor]}["b"], "b": {Dict[str, Tensor]}["a"]}'],
    PAIR: ["({int}, {row})", "({Tuple[int, Tensor]}[0] + 1, {row})", "pair({row}, {int})"],
    POINT: ["Point({int}, {row})", "Point({Point}.count + {k}, {Point}.value * 0.5)"],
    MAYBE: ["{row}", "None", "{Optional[Tensor]}"],
    MAYBE_INT: ["{int}", "None"],
}  # fmt: skip
PLAIN = {
    "int": ["n", "0", "1", "2", "3", "-1", "5", "12"],
    "float": ["f", "0.5", "1.5", "-2.0", "3.0", "0.0"],
    "bool": ["flag", "flag", "(n > 0)", "(f > 0.0)"],
    MATRIX: ["(x * 1)", "(x + b)"],
    ROW: ["(b * 1)", "x.sum(0)"],
    LENGTH: ["(b * 2)[n % 3:]"],
    WHOLE: ["torch.arange(4)"],
    "text": ['"a"'],
    INTS: ["[n, 1]"],
    FLOATS: ["[f, 0.5]"],
    ROWS: ["[b * 1]"],
    COUNTS: ['{"a": n, "b": 2}'],
    NAMED: ['{"a": b * 1, "b": b + 1}'],
    PAIR: ["(n, b * 1)"],
    POINT: ["Point(n, b * 1)"],
    MAYBE: ["None"],
    MAYBE_INT: ["None"],
}
OF_MODULES = {
    "int": ["self.count"],
    "float": ["self.scale"],
    "bool": ["self.wide"],
    ROW: ["(self.bias * 1)", "(self.offset + 1)"],
    MATRIX: ["self.inner({matrix}, {int})", "self.step({matrix}, {int})"],
    INTS: ["self.sizes"],
}
WRITES: dict[str, list[str]] = {
    MATRIX: [
        "{0}[0] = {row}", "{0}[{int} % {0}.size(0)] += {float}", "{0}[:, {j}] *= 2", "{0}[:, {j}:] -= 1",
        "{0}[{0} > {float}] = 0.5", "{0}[:, {j}][{int} % {0}.size(0)] = {float}", "{0}.t()[{j}] += 1",
        "{0}.add_({matrix})", "{0}.clamp_(-9, 9)", "{0} += {row}", "{0}[-1, 1:3] = {float}", "{0}.zero_()",
        "{0}[{int} % {0}.size(0):] *= 0.5", "{0}.relu_()",
    ],
    ROW: [
        "{0}[{j}] = {float}", "{0}[1:3] += {k}", "{0}[{int} % 4] -= 1", "{0}[{int} % 4:] = {float}",
        "{0}.mul_({k})", "{0}.view(2, 2)[1] += 1", "{0}[{row} > {float}] = -1.5", "{0} += {row}",
        "{0}.neg_()",
        "{0}.copy_({row} * 1)", "{0}[::2].add_({float})", "{0}[{whole} % 4] = 2.0",
    ],
    LENGTH: ["{0} *= 2", "{0}[:1] += 1", "{0}.neg_()", "{0}[{0} > {float}] = 0.5"],
    WHOLE: ["{0} += {k}", "{0}[{j}] = {int} % 50", "{0}[{int} % 4] += 1", "{0} %= {k}"],
    INTS: ["{0}.append({int} % 99)", "{0}.append({k})", "{0}.insert(0, {int} % 9)", "{0}.reverse()",
           "{0}.extend([{int} % 9])", "if len({0}) > 1:\n    {0}.pop()",
           "if len({0}) > 0:\n    {0}[0] = {int} % 7",
           "if len({0}) > 2:\n    del {0}[1]", "{0}.sort()", "{0} += [{k}]",
           "if len({0}) > 3:\n    {0}.clear()",
           "if len({0}) > 0:\n    {0}[{int} % len({0})] = {k}"],
    FLOATS: ["{0}.append({float})", "if len({0}) > 1:\n    {0}.pop(0)",
            "if len({0}) > 0:\n    {0}[-1] = {float}"],
    ROWS: ["{0}.append({row})", "if len({0}) > 1:\n    {0}.pop()", "if len({0}) > 0:\n    {0}[0] = {row}",
           "{0}.insert(0, {row})", "{0}.reverse()", "if len({0}) > 0:\n    {0}[0] += 1",
           "if len({0}) > 0:\n    {0}[{int} % len({0})] = {row}"],
    COUNTS: ['{0}["a"] = {int} % 99', '{0}["b"] += {k}', '{0}[{text}] = {k}', '{0}.update({"a": {int} % 9})'],
    NAMED: ['{0}["a"] = {row}', '{0}["b"] = {0}["a"] * 0.5', '{0}["a"] += 1', '{0}[{text}] = {row}',
            'for key in ("a", "b"):\n    {0}[key] = {0}[key] - 1'],
}  # fmt: skip
BOUNDED = {
    "int": "({}) % 1009 - 300", "float": "max(min({}, 500.0), -500.0)", MATRIX: "({}).clamp(-99, 99)",
    ROW: "({}).clamp(-99, 99)", WHOLE: "({}) % 1009",
}  # fmt: skip
ZERO = "(f - f)"
"""Added to every result, for onnxruntime's Where loses the sign of zero."""
RETURNED = {
    **dict.fromkeys(("float", MATRIX, ROW, LENGTH), "{0} + ZERO"),
    INTS: "sum({0}), len({0}), {0} == [1, 2]", FLOATS: "sum({0}) + ZERO, len({0})",
    ROWS: "total({0}) + ZERO, len({0})", PAIR: "({0}[0], {0}[1] + ZERO)",
    POINT: "Point({0}.count, {0}.value + ZERO)", MAYBE: "or_else({0}, b) + ZERO, {0} is None",
    MAYBE_INT: "number_or({0}, 77)", COUNTS: '{0}["a"], {0}["b"]',
    NAMED: '{"a": {0}["a"] + ZERO, "b": {0}["b"] + ZERO}', "text": "len({0})",
}  # fmt: skip

PRELUDE = """import math
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class Point(NamedTuple):
    count: int
    value: Tensor


def total(rows: List[Tensor]):
    if len(rows) == 0:
        return torch.zeros(4)
    result = rows[0]
    for index in range(1, len(rows)):
        result = result + rows[index]
    return result


def or_else(maybe: Optional[Tensor], other: Tensor):
    if maybe is not None:
        return maybe
    return other


def number_or(maybe: Optional[int], other: int):
    if maybe is None:
        return other
    return maybe + 1


def first(items: List[int], above: int):
    for item in items:
        if item > above:
            return item
    return -1


def shift(m: Tensor, by: int):
    by = by % m.size(0)
    return torch.cat([m[by:], m[:by]])


def pair(row: Tensor, n: int) -> Tuple[int, Tensor]:
    if n > 2:
        return n - 1, row * 2
    return n, row


"""
MODULE = """class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 2.0, -1.0, 1.5]))

    def forward(self, m: Tensor, n: int):
        if n > 3:
            return m + self.weight
        return m * self.weight


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.scale, self.wide, self.sizes = 3, 0.5, True, [2, 4]
        self.inner = Inner()
        self.register_buffer("bias", torch.tensor([1.0, -1.0, 0.5, 2.0]))
        self.offset = torch.nn.Parameter(torch.tensor([0.5, 0.0, -1.5, 1.0]))

    def step(self, m: Tensor, n: int):
        for i in range(n % 4):
            if i == self.count:
                break
            m = m * self.scale + self.bias
        return m

"""

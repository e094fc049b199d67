"""Random programs that decide by the sizes of their argument, in integers and floats.

A program is the text of a function of a float tensor (n, m). It branches on conditions on n and m, asserts
them, or computes with numbers made of them. Each is captured at one pair of sizes, and run at many others,
the neighbours of the example's among them.
"""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Callable
from random import Random
from typing import Any

import torch

from .programs import Program

_SIZES = (*range(14), 16, 17, 20, 25, 31, 32, 33, 49, 50, 64, 100)
_CALLS = 30
_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")
_CAPTURES = ("auto", "auto", "direct", "torch.export", "strict")

_INTEGERS: tuple[str, ...] = (
    "{i} + {i}", "{i} - {i}", "{i} * {i}", "{i} // {c}", "{i} % {c}", "-{i} % {c}", "-{i} // {c}",
    "{i} // -{c}", "({i} - {c}) % {c}", "({i} - {c}) // {c}", "max({i}, {i})", "min({i}, {i})",
    "math.ceil({f})", "math.floor({f})", "round({f})", "math.trunc({f})", "int({f})", "abs({i} - {i})",
    "math.ceil({i} / {c}) * {c}", "round({i} / {c})", "math.floor({i} / {c})", "{i} ** 2",
)  # fmt: skip
_FLOATS: tuple[str, ...] = (
    "{i} / {c}", "{i} / {i}", "{i} * {d}", "{f} * {d}", "{f} + {f}", "{f} - {f}", "{f} / {d}", "{i} ** 0.5",
    "math.sqrt({i})", "float({i})", "{i} * {d} + {i} * {d}", "{i} * {d} * {d}", "{i} + {d} + {d}",
    "{i} / {c} / {c}", "{i} * {i} / {c}", "max({f}, {d})", "abs({f})", "-{f}",
)  # fmt: skip
_CONDITIONS: tuple[str, ...] = (
    "{i} {r} {i}", "{i} {r} {c}", "{f} {r} {d}", "{f} {r} {f}", "{i} {r} {f}", "{f} {r} {c}",
    "{f} {r} {i}", "{b} and {b}", "{b} or {b}", "not {b}", "{c} < {i} <= {i}", "{i} % {c}",
    "{i} / {i} {r} {d}", "{i} * {d} {r} {i} * {d}", "bool({i} % {c})", "n * m {r} {big}",
)  # fmt: skip


class _Writer:
    def __init__(self, random: Random):
        self._random = random
        self._variables: dict[str, list[str]] = {"i": ["n", "m"], "f": []}

    def expression(self, form: str, depth: int) -> str:
        """An integer (`i`), a float (`f`), a condition (`b`), a relation or a constant."""
        pick = self._random.choice
        if form == "c":
            return str(pick((1, 2, 2, 3, 4, 5, 7, 8)))
        if form == "d":
            return pick(("0.1", "0.25", "0.3", "0.5", "0.7", "1.0", "1.5", "2.5", "3.0", "1e-3"))
        if form == "big":
            return str(pick((1, 4, 6, 12, 48, 1000, 2**53)))
        if form == "r":
            return pick(_RELATIONS)
        if form in self._variables and (depth <= 0 or self._random.random() < 0.4):
            if self._variables[form]:
                return pick(self._variables[form])
            return f"{pick(('n', 'm'))} / {self.expression('c', 0)}"
        forms = {"i": _INTEGERS, "f": _FLOATS, "b": _CONDITIONS}[form]
        text = pick([t for t in forms if "{b}" not in t or depth > 1])
        for part in ("i", "f", "b", "r", "c", "d", "big"):
            while f"{{{part}}}" in text:
                inner = self.expression(part, depth - 1)
                is_simple = inner.replace(".", "").replace("-", "").isalnum() or part in "rc"
                text = text.replace(f"{{{part}}}", inner if is_simple else f"({inner})", 1)
        return text

    def lines(self) -> list[str]:
        """The body of a function of x."""
        random = self._random
        lines = ["n, m = x.shape"]
        for number in range(random.randint(0, 3)):
            form = random.choice("iiff")
            lines.append(f"v{number} = {self.expression(form, 2)}")
            self._variables[form].append(f"v{number}")
        lines.append("y = x + 1")
        for _ in range(random.randint(1, 3)):
            condition = self.expression("b", 2)
            lines += random.choice(
                [
                    [f"if {condition}:", "    y = y * 2", "else:", "    y = y - 3"],
                    [f"if {condition}:", "    y = y * 2"],
                    [f"if {condition}:", "    return y * 7"],
                    [f"assert {condition}"],
                    [f"torch._check({condition})"],
                    [f"y = y * ({self.expression('f', 2)})"],
                    [f"y = y + ({self.expression('i', 2)})"],
                    [f"y = y if {condition} else y.exp()"],
                    [f"if {condition}:", f"    y = y[:, : {random.choice((1, 2, 5))}] * 2"],
                ]
            )
        return [*lines, "return y * 5"]


def program(seed: int) -> Program:
    """The program of a seed; its example is a pair of sizes at which eager PyTorch runs it."""
    random = Random(seed)
    while True:
        lines = _Writer(random).lines()
        body = "\n".join(f"    {line}" for line in lines)
        source = f"def program(x):\n{body}\n"
        file = f"<sizes {seed}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {"torch": torch, "math": math, "__name__": __name__}
        exec(compile(source, file, "exec", dont_inherit=True), namespace)
        example = next((pair for pair in _pairs(random) if _runs(namespace["program"], pair)), None)
        if example is not None:
            break
    near = {(example[0] + a, example[1] + b) for a, b in itertools.product(range(-2, 3), repeat=2)}
    others = sorted(pair for pair in near if min(pair) >= 0 and pair != example)
    small = sorted(itertools.product((0, 1, 2), repeat=2))
    calls = random.sample(others, min(len(others), 8)) + random.sample(small, 4)
    calls += [(random.choice(_SIZES), random.choice(_SIZES)) for _ in range(_CALLS - len(calls))]
    return Program(
        seed,
        namespace["program"],
        (_tensor(example),),
        [(_tensor(pair),) for pair in calls],
        f"# captured at {example}\n{source}",
        {"x": {0: "n", 1: "m"}},
        options={"capture": random.choice(_CAPTURES)},
    )


def _pairs(random: Random) -> list[tuple[int, int]]:
    """Sizes for the example; 1 is frequent, because captures enlarge it."""
    sizes = (1, 1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 20)
    return [(random.choice(sizes), random.choice(sizes)) for _ in range(6)]


def _tensor(shape: tuple[int, int]) -> torch.Tensor:
    return torch.arange(float(math.prod(shape))).reshape(shape) / 8 - 1


def _runs(function: Callable[..., Any], shape: tuple[int, int]) -> bool:
    try:
        function(_tensor(shape))
    except Exception:
        return False
    return True

"""Random programs of views, writes and reads in the part of Python that TorchScript takes.

A program is the text of a function `program(a, b, index, n)` of a float tensor (3, 4), one of (4,), positions
in the first dimension of `a`, all different, and a number from -1 to 2. Every variable keeps its shape, but
for those of an unknown length. What is written to a tensor never overlaps with it in memory: PyTorch gives
that no meaning.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch

MATRIX, ROW, COLUMN, LENGTH = "matrix", "row", "column", "length"
"""(3, 4), (4,), (3,), and one dimension of unknown size."""

_VIEWS: dict[str, dict[str, list[str]]] = {
    # Of what, seen as what: {0} is the tensor, {i} a position in three, negative ones too.
    MATRIX: {
        MATRIX: [
            "{0}",
            "{0}[:]",
            "{0}[0:3]",
            "{0}.t().t()",
            "{0}.unsqueeze(0)[0]",
            "{0}.view_as({0})",
            "{0}.detach()",
        ],
        ROW: [
            "{0}[{i}]",
            "{0}[{i}]",
            "{0}.select(0, {i})",
            "{0}.t()[:, {i}]",
            "{0}.unbind(0)[1]",
            "{0}.split(1)[2][0]",
        ],
        COLUMN: ["{0}[:, {i}]", "{0}[:, 1:].diagonal()", "{0}.t()[{i}]", "{0}.narrow(1, {j}, 1).squeeze(1)"],
        LENGTH: [
            "{0}[{i}, {j}:]",
            "{0}[:{j}, 1]",
            "{0}.reshape(-1)[{j}:]",
            "{0}[:, {i}][{j}:]",
            "{0}.flatten()",
        ],
    },
    ROW: {
        MATRIX: [],
        ROW: ["{0}", "{0}[:]", "{0}.unsqueeze(0).squeeze(0)", "{0}.view(2, 2).reshape(4)", "{0}.view(4)"],
        COLUMN: ["{0}[1:]", "{0}[:-1]", "{0}[0:3]", "{0}.narrow(0, 1, 3)"],
        LENGTH: ["{0}[{j}:]", "{0}[:{i}]", "{0}[::2]", "{0}[{j}:{j} + 2]"],
    },
    COLUMN: {
        MATRIX: [],
        ROW: [],
        COLUMN: ["{0}", "{0}[:]", "{0}.view(3, 1)[:, 0]", "{0}.unsqueeze(1).squeeze(1)"],
        LENGTH: ["{0}[{j}:]", "{0}[:{i}]"],
    },
    LENGTH: {
        MATRIX: [],
        ROW: [],
        COLUMN: [],
        LENGTH: ["{0}", "{0}[1:]", "{0}[:-1]", "{0}[{j}:]", "{0}[::2]"],
    },
}
_COPIES: dict[str, list[str]] = {
    MATRIX: ["{0}.clone()", "{0} + 1", "{0} * {1}", "-{0}", "torch.where({0} > {1}, {0}, {1})", "{0}[index]"],
    ROW: ["{0}.clone()", "{0} * 2", "{0} - {1}", "torch.relu({0})", "{0}.flip(0)"],
    COLUMN: ["{0}.clone()", "{0} - 3", "{0} + {1}", "torch.abs({0})", "{0}[index]"],
    LENGTH: ["{0}.clone()", "{0} + 2", "torch.cat([{0}, {0}[:1]])"],
}
_WRITES: dict[str, list[str]] = {
    # {1} is a tensor of the same shape elsewhere in memory.
    MATRIX: [
        "{0}[{i}] = {r}", "{0}[{i}] += 1", "{0}[1:][1] *= 2", "{0}[:, 1:3] -= 2", "{0}[{i}][{j}] = 9.0",
        "{0}[{i}, ::2] = 7.0", "{0}[{0} > 2] = 0.0", "{0}[index] = {1}", "{0}[:, {i}] = {c}",
        "{0}[1:, 1:][:, 0] += 1",
        "{0}.diagonal().add_(1)", "{0}[index, index] = 5.0", "{0}.t()[{i}] = 4.0",
        "{0}.index_fill_(0, index[:2], 3.0)",
        "{0}.masked_fill_({1} > 0, -1.0)", "{0}[{j}:] = 8.0", "{0}[...] = {r}", "{0}[:, -2:].zero_()",
    ],
    ROW: ["{0}[{i}] = 6.0", "{0}[1:3] += 1", "{0}[::2] = 0.5", "{0}[{0} < 1] = 2.0", "{0}[index] = {c}",
          "{0}[{j}:] *= 2"],
    COLUMN: ["{0}[{i}] += 2", "{0}[:2] = -3.0", "{0}[index[:1]] = 1.0", "{0}[{0} == {1}] = 0.0"],
    LENGTH: ["{0}[:1] += 1", "{0}[-2:] = 4.0", "{0}[1:].neg_()", "{0}[{0} > 3] = 1.5"],
}  # fmt: skip
_EVERYWHERE = [
    "{0} += 1", "{0}.add_(2)", "{0}.mul_(-1)", "{0} *= 2", "{0}.neg_()", "{0}.fill_(3.0)", "{0}.zero_()",
    "{0}.clamp_(-20, 20)", "{0}.relu_()", "{0} -= {1}", "{0}.copy_({1})", "{0}.add_({1})",
    "torch.add({1}, 1, out={0})", "torch.mul({1}, {1}, out={0}).clamp_(-9, 9)",
    "{0}.masked_fill_({0} > 4, 0.5)",
]  # fmt: skip
_CONDITIONS = [
    "bool({0}.max() > {k})", "bool({0}.min() < {k})", "bool({0}.reshape(-1)[:1].max() <= {k})", "n > 0",
    "n == {j}",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and inputs that take different paths through it.

    Attributes:
        text: the function's source.
        inputs: argument tuples.
    """

    text: str
    inputs: tuple[tuple[Any, ...], ...]

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The program as a Python function, whose source TorchScript finds."""
        name = f"<program {next(_NUMBERS)}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"torch": torch, "__name__": __name__}
        exec(compile(self.text, name, "exec"), namespace)
        return namespace["program"]


_NUMBERS = itertools.count()


class _Writer:
    """Writes one program, statement after statement."""

    def __init__(self, random: Random, statements: int, mutating: bool):
        self._random = random
        self._left = statements
        self._names = (f"v{number}" for number in itertools.count())
        self._variables: dict[str, str] = {"a": MATRIX, "b": ROW}
        self._positions = ["0", "1", "2", "-1", "n", "n"]
        self._depth = 0
        self._looping = False
        self.lines = ["def program(a: torch.Tensor, b: torch.Tensor, index: torch.Tensor, n: int):"]
        if not mutating:
            self._line("a = a.clone()")
            self._line("b = b.clone()")

    def write(self) -> str:
        """The text of a whole program; it returns all of its variables."""
        for _ in range(self._random.randint(1, 3)):
            self._declare()
        while self._left > 0:
            self._statement()
        self._line(f"return {', '.join(self._variables)}")
        return "\n".join(self.lines) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append("    " * (self._depth + 1) + text)

    def _pick(self, items: Any) -> Any:
        return self._random.choice(list(items))

    def _filled(self, pattern: str, name: str, shape: str) -> str:
        parts = {
            "i": self._pick(self._positions),
            "j": self._pick("012"),
            "k": str(self._random.randint(-3, 9)),
        }
        if "{1}" in pattern:
            parts["1"] = self._fresh(shape, name)
        if "{r}" in pattern:
            parts["r"] = self._fresh(ROW, name)
        if "{c}" in pattern:
            parts["c"] = self._fresh(COLUMN, name)
        for key, text in (("0", name), *parts.items()):
            pattern = pattern.replace("{" + key + "}", text)
        return pattern

    def _fresh(self, shape: str, like: str) -> str:
        """An expression of a shape that shares no memory with anything."""
        if shape == LENGTH:
            return f"({like} * 2)"
        name, found = self._pick(self._variables.items())
        views = _VIEWS[found][shape]
        if not views:
            return {MATRIX: "(a * 1)", ROW: "(b + 0)", COLUMN: "(a[:, 1] - 1)"}[shape]
        return f"({self._filled(self._pick(views), name, shape)} * {self._pick('123')})"

    def _expression(self, shape: str) -> str:
        """An expression of a shape: a view of some variable, or a new tensor."""
        candidates = [
            (name, view) for name, found in self._variables.items() for view in _VIEWS[found][shape]
        ]
        name, view = self._pick(candidates)
        found = self._filled(view, name, shape)
        if self._random.random() < 0.25:
            return self._filled(self._pick(_COPIES[shape]), found, shape)
        return found

    def _declare(self) -> None:
        shape = self._pick([MATRIX, ROW, ROW, COLUMN, LENGTH])
        expression = self._expression(shape)
        name = next(self._names)
        self._line(f"{name} = {expression}")
        self._variables[name] = shape

    def _statement(self) -> None:
        self._left -= 1
        kinds = ["declare", "assign", "assign", "write", "write", "write"]
        if self._depth < 3:
            kinds += ["if", "for", "while", "if", "for"]
        if self._looping:
            kinds += ["stop"]
        getattr(self, f"_{self._pick(kinds)}")()

    def _assign(self) -> None:
        name, shape = self._pick(self._variables.items())
        others = [other for other, found in self._variables.items() if found == shape and other != name]
        if len(others) and self._random.random() < 0.15:
            other, spare = self._pick(others), next(self._names)
            self._line(f"{spare} = {name}")
            self._line(f"{name} = {other}")
            self._line(f"{other} = {spare}")
        else:
            self._line(f"{name} = {self._expression(shape)}")

    def _write(self) -> None:
        name, shape = self._pick(self._variables.items())
        self._line(self._filled(self._pick([*_WRITES[shape], *_EVERYWHERE]), name, shape))

    def _condition(self) -> str:
        fixed = {name: shape for name, shape in self._variables.items() if shape != LENGTH}
        name, shape = self._pick(fixed.items())
        return self._filled(self._pick(_CONDITIONS), name, shape)

    def _block(self, position: str | None = None) -> None:
        """A block of statements; what it declares ends with it."""
        before, positions = dict(self._variables), list(self._positions)
        if position is not None:
            self._positions += [position] * 3
        self._depth += 1
        for _ in range(self._random.randint(1, 4)):
            self._statement()
        self._depth -= 1
        self._variables, self._positions = before, positions

    def _if(self) -> None:
        self._line(f"if {self._condition()}:")
        self._block()
        if self._random.random() < 0.6:
            self._line("else:")
            self._block()

    def _for(self) -> None:
        counter = f"i{next(self._names)}"
        count = self._pick(["2", "3", "n", "n + 3", "0", "1"])
        limit = f"min({count}, 3)" if "n" in count else count
        self._line(f"for {counter} in range({limit}):")
        self._loop(counter)

    def _while(self) -> None:
        counter = f"i{next(self._names)}"
        self._line(f"{counter} = 0")
        self._line(f"while {counter} < 3 and {self._condition()}:")
        self._depth += 1
        self._line(f"{counter} += 1")
        self._depth -= 1
        self._loop(f"{counter} - 1")

    def _loop(self, position: str) -> None:
        outer, self._looping = self._looping, True
        self._block(position)
        self._looping = outer

    def _stop(self) -> None:
        self._line(f"if {self._condition()}:")
        self._depth += 1
        self._line(self._pick(["break", "break", "continue"]))
        self._depth -= 1


def arguments(random: Random) -> Iterator[tuple[Any, ...]]:
    """Arguments that take different paths."""
    for n in (1, -1, 2, 0):
        yield (
            torch.tensor([[random.randint(-6, 9) / 2 for _ in range(4)] for _ in range(3)]),
            torch.tensor([random.randint(-6, 9) / 2 for _ in range(4)]),
            torch.tensor(random.sample(range(3), 3)),
            n,
        )


def random_program(random: Random, statements: int = 8) -> Program:
    """A program and four argument tuples.

    Args:
        statements: about how many it has.
    """
    text = _Writer(random, statements, random.random() < 0.2).write()
    return Program(text, tuple(arguments(random)))

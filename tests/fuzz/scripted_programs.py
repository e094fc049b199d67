"""Random TorchScript programs: branches and loops, early returns, numbers, containers, in-place writes.

A program is the text of a module or function `forward(x, b, n, f, flag)` of a float tensor (rows, 4), one of
(4,), an int, a float and a bool. Every variable keeps its type; what loops carry is kept small.
"""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import torch

from . import scripted_grammar as grammar
from .programs import Program
from .scripted_grammar import (
    CONTAINERS,
    FLOATS,
    INTS,
    LENGTH,
    MATRIX,
    MAYBE,
    MAYBE_INT,
    ROW,
    ROWS,
    TENSORS,
    WHOLE,
)


class _Writer:
    """Writes one program, statement after statement."""

    def __init__(self, random: Random, statements: int, is_module: bool):
        self._random = random
        self._left = statements
        self._numbers = itertools.count()
        self._variables: dict[str, str] = {}
        self._expressions = {kind: list(items) for kind, items in grammar.EXPRESSIONS.items()}
        self._depth = 1
        self._loops: list[bool] = []
        self._returned: list[str] = []
        self._raising = random.random() < 0.1
        self.lines: list[str] = []
        if is_module:
            for kind, items in grammar.OF_MODULES.items():
                self._expressions[kind] += items * 3

    def write(self, head: str) -> list[str]:
        """The lines of a whole function."""
        self.lines = [head]
        for kind in (
            "int",
            "float",
            MATRIX,
            ROW,
            *self._sample((WHOLE, LENGTH, "bool", "text", *CONTAINERS), 4),
        ):
            self._declare(kind)
        self._returned = list(self._variables)
        while self._left > 0:
            self._statement()
        self._line(self._result())
        return self.lines

    def _sample(self, items: Sequence[str], count: int) -> list[str]:
        return self._random.sample(list(items), count)

    def _pick(self, items: Any) -> Any:
        return self._random.choice(list(items))

    def _line(self, text: str) -> None:
        self.lines += ["    " * self._depth + line for line in text.split("\n")]

    def _result(self) -> str:
        parts = [
            grammar.RETURNED.get(self._variables[name], "{0}").replace("{0}", name) for name in self._returned
        ]
        return f"return {', '.join(parts).replace('ZERO', grammar.ZERO)}"

    def _expression(self, kind: str, depth: int = 0) -> str:
        """An expression of a type; deep ones are plain."""
        variables = [name for name, found in self._variables.items() if found == kind]
        if variables and self._random.random() < 0.25 + 0.25 * depth:
            return self._pick(variables)
        if depth > 2 or self._random.random() < 0.1:
            return self._pick(grammar.PLAIN[kind])
        return self._filled(self._pick(self._expressions[kind]), depth + 1)

    def _filled(self, pattern: str, depth: int = 1) -> str:
        for kind in (*grammar.EXPRESSIONS, "k", "j"):
            mark = "{" + kind + "}"
            while mark in pattern:
                text = self._part(kind, depth)
                if text is None:
                    return self._pick(grammar.PLAIN["int"]) if "[0]" not in pattern else "1"
                pattern = pattern.replace(mark, text, 1)
        return pattern

    def _part(self, kind: str, depth: int) -> str | None:
        if kind in ("k", "j"):
            return self._pick("1234" if kind == "k" else "0123")
        if kind not in CONTAINERS:
            return self._expression(kind, depth)
        variables = [name for name, found in self._variables.items() if found == kind]
        return self._pick(variables) if variables else self._made(kind)

    def _made(self, kind: str) -> str:
        """A container for one expression, in a variable of its own."""
        name = f"v{next(self._numbers)}"
        self._line(f"{name}: {kind} = {self._pick(grammar.PLAIN[kind])}")
        self._variables[name] = kind
        return name

    def _declare(self, kind: str | None = None) -> None:
        kind = kind or self._pick(("int", "float", "bool", *TENSORS, *CONTAINERS))
        expression = self._expression(kind)
        name = f"v{next(self._numbers)}"
        annotation = f": {kind}" if kind in CONTAINERS else ""
        if kind in TENSORS:
            expression = f"({expression}).clone()"
        self._line(f"{name}{annotation} = {expression}")
        self._variables[name] = kind

    def _statement(self) -> None:
        self._left -= 1
        kinds = ["declare", "assign", "assign", "assign", "write", "write", "swap"]
        if self._depth < 4:
            kinds += ["if", "if", "for", "while", "over", "maybe"]
        if self._loops:
            kinds += ["stop", "stop"]
        if self._depth > 1:
            kinds += ["leave"]
        getattr(self, f"_{self._pick(kinds)}")()

    def _assign(self) -> None:
        name, kind = self._pick(self._variables.items())
        if kind in ("int", "float") and self._random.random() < 0.4:
            self._line(f"{name} {self._pick(('+=', '-='))} {self._expression(kind, 2)}")
            return
        expression = self._expression(kind)
        if kind in grammar.BOUNDED and self._loops:
            expression = grammar.BOUNDED[kind].format(expression)
        self._line(f"{name} = {expression}")

    def _write(self) -> None:
        written = [(name, kind) for name, kind in self._variables.items() if kind in grammar.WRITES]
        name, kind = self._pick(written)
        self._line(self._filled(self._pick(grammar.WRITES[kind]).replace("{0}", name)))

    def _swap(self) -> None:
        name, kind = self._pick(self._variables.items())
        others = [other for other, found in self._variables.items() if found == kind and other != name]
        if others and kind not in (MAYBE, MAYBE_INT):
            other = self._pick(others)
            self._line(f"{name}, {other} = {other}, {name}")
        else:
            self._assign()

    def _block(self, longest: int = 4) -> None:
        """A block of statements; what it declares ends with it."""
        before = dict(self._variables)
        self._depth += 1
        for _ in range(self._random.randint(1, longest)):
            self._statement()
        self._depth -= 1
        self._variables = before

    def _if(self) -> None:
        self._line(f"if {self._expression('bool')}:")
        self._block()
        for _ in range(self._random.choice((0, 0, 0, 1))):
            condition = self._inner_condition()
            self._line(f"elif {condition}:")
            self._block(2)
        if self._random.random() < 0.5:
            self._line("else:")
            self._block()

    def _inner_condition(self) -> str:
        """A condition that no statement has to make anything for."""
        numbers = [name for name, kind in self._variables.items() if kind == "int"]
        return f"{self._pick(numbers)} > {self._pick('0123')}"

    def _for(self) -> None:
        counter = f"i{next(self._numbers)}"
        bounds = (
            "2",
            "3",
            "min(n, 4)",
            f"{self._expression('int', 2)} % 5",
            "x.size(0)",
            "1, n % 6",
            "4, 0, -2",
        )
        self._line(f"for {counter} in range({self._pick(bounds)}):")
        self._loop({counter: "counter"})

    def _while(self) -> None:
        counter = f"w{next(self._numbers)}"
        self._line(f"{counter} = 0")
        condition = self._expression("bool")
        if condition.count("{"):
            condition = "flag"
        self._line(f"while {counter} < {self._pick('345')} and {condition}:")
        self._depth += 1
        self._line(f"{counter} += 1")
        self._depth -= 1
        self._loop({counter: "counter"})

    def _over(self) -> None:
        """A loop over what a container holds."""
        item = f"e{next(self._numbers)}"
        lists = [
            (name, kind) for name, kind in self._variables.items() if kind in (INTS, FLOATS, ROWS, MATRIX)
        ]
        name, kind = self._pick(lists)
        one = {INTS: "int", FLOATS: "float", ROWS: ROW, MATRIX: ROW}[kind]
        copied = f"{name}[:5]" if kind != MATRIX else name
        if kind in (INTS, FLOATS) and self._random.random() < 0.4:
            index = f"i{next(self._numbers)}"
            self._line(f"for {index}, {item} in enumerate({copied}):")
        else:
            self._line(f"for {item} in {copied}:")
        self._loop({item: one if kind != MATRIX else "view"})

    def _loop(self, given: dict[str, str]) -> None:
        before = dict(self._variables)
        plain = {kind: list(items) for kind, items in grammar.PLAIN.items()}
        for name, kind in given.items():
            # Counters are read, and never assigned.
            grammar.PLAIN[{"counter": "int", "view": ROW}.get(kind, kind)] += [name] * 4
        self._loops.append(True)
        self._block()
        self._loops.pop()
        self._variables = before
        grammar.PLAIN.update(plain)

    def _stop(self) -> None:
        self._line(f"if {self._expression('bool')}:")
        self._depth += 1
        if self._random.random() < 0.5:
            self._assign()
        self._line(self._pick(("break", "break", "continue")))
        self._depth -= 1

    def _leave(self) -> None:
        """An early return, or an exception that the inputs do not reach."""
        condition = self._expression("bool")
        if self._raising and self._random.random() < 0.3:
            self._line('if n > 1000:\n    raise ValueError(f"n is {n}")')
            return
        self._line(f"if {condition}:")
        self._depth += 1
        self._line(self._result())
        self._depth -= 1

    def _maybe(self) -> None:
        """A test of an optional value, and what follows from it."""
        names = [name for name, kind in self._variables.items() if kind == MAYBE]
        if not names:
            return self._if()
        name = self._pick(names)
        rows = [other for other, kind in self._variables.items() if kind == ROW]
        self._line(f"if {name} is not None:\n    {self._pick(rows)} = {name} * 0.5")
        self._line(f"else:\n    {name} = {self._pick(rows)} + 1")


def _arguments(random: Random, rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Arguments that take different paths."""
    for n, count in zip(random.sample((3, 0, 2, 5, -2, 7, 1), len(rows)), rows, strict=True):
        yield (
            torch.tensor([[random.randint(-6, 9) / 2 for _ in range(4)] for _ in range(count)]),
            torch.tensor([random.randint(-6, 9) / 2 for _ in range(4)]),
            n,
            random.randint(-9, 9) / 4,
            random.random() < 0.5,
        )


def _text(random: Random) -> str:
    is_module = random.random() < 0.4
    arguments = "x: Tensor, b: Tensor, n: int, f: float, flag: bool"
    head = f"def forward({'self, ' if is_module else ''}{arguments}):"
    lines = _Writer(random, random.randint(4, 14), is_module).write(head)
    if is_module:
        return grammar.PRELUDE + grammar.MODULE + "\n".join("    " + line for line in lines) + "\n"
    return grammar.PRELUDE + "\n".join(lines) + "\n"


_FILES = itertools.count()


def _scripted(text: str) -> Any:
    name = f"<scripted program {next(_FILES)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    model = namespace["Model"]().eval() if "Model" in namespace else namespace["forward"]
    return torch.jit.script(model)


class _Unoptimized:
    """A scripted program without TorchScript's optimizer, which changes the results of some loops.

    Each call runs a copy of a module: what it changes of its lists is not there for the next.
    """

    def __init__(self, model: Any):
        self._model = model

    def __call__(self, *arguments: Any) -> Any:
        model = self._model
        if isinstance(model, torch.jit.ScriptModule):
            model = copy.deepcopy(model)
        with torch.jit.optimized_execution(False):
            return model(*arguments)


def program(seed: int) -> Program:
    """The program of a seed: the first of its texts that TorchScript takes, and that runs on the example."""
    for attempt in itertools.count():
        random = Random(f"{seed} {attempt}")
        text = _text(random)
        varies = random.random() < 0.5
        example, *inputs = _arguments(random, (3, 5, 1, 2) if varies else (3, 3, 3, 3))
        try:
            model = _scripted(text)
            reference = _Unoptimized(model)
            with torch.no_grad():
                reference(*example)
        except Exception:
            # TorchScript refuses what it cannot type, and the program may raise.
            continue
        dynamic = {"x": {0: "rows"}} if varies else None
        source = text[len(grammar.PRELUDE) :]
        return Program(seed, model, example, inputs, source, dynamic, reference)
    raise AssertionError

"""Random programs of tensor operators, of all element types and of special values.

A program is the text of a function of two or three tensors. Each statement makes a variable from earlier
ones, or writes into one; a statement that eager PyTorch refuses, for any of the arguments, is not taken.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import torch

from .operator_templates import MAKES, VIEWS, WRITES
from .programs import Program

_FLOATS = (torch.float32, torch.float32, torch.float32, torch.float32, torch.float64, torch.float16)
_INTEGERS = (torch.int64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
_SHAPES = (
    (3, 4), (3, 4), (4, 3), (2, 3, 4), (4,), (3,), (3, 1), (1, 4), (2, 3, 6, 5), (1, 2, 7, 8), (2, 4, 4),
    (4, 4), (), (3, 0), (0, 4), (2, 3, 9),
)  # fmt: skip
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-30, 60000.0, -1.0, 1.0)
_MOST_ELEMENTS = 500


def _tensor(random: Random, dtype: torch.dtype, shape: tuple[int, ...], special: bool) -> torch.Tensor:
    count = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor([random.random() < 0.5 for _ in range(count)]).reshape(shape)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        high = 120 if special else 9
        high = high * 10**6 if special and dtype == torch.int64 else high
        numbers = [random.randint(low, high) for _ in range(count)]
        return torch.tensor(numbers, dtype=dtype).reshape(shape)
    exact = random.random() < 0.4
    values = [
        random.choice(_SPECIAL)
        if special and random.random() < 0.15
        else random.randint(-12, 12) / 4
        if exact
        else random.gauss(0, 1.5)
        for _ in range(count)
    ]
    return torch.tensor(values, dtype=torch.float64).to(dtype).reshape(shape)


class _Writer:
    """Writes one program, and runs it on all of its arguments as it grows."""

    def __init__(self, random: Random):
        self._random = random
        self._names = (f"v{number}" for number in itertools.count())
        self.dynamic = random.random() < 0.3
        kinds = [random.choice(_FLOATS), random.choice((*_FLOATS, *_INTEGERS, torch.bool))]
        if random.random() < 0.4:
            kinds.append(random.choice((*_INTEGERS, torch.bool)))
        shapes = [random.choice(_SHAPES) for _ in kinds]
        if random.random() < 0.6:
            shapes[1] = shapes[0]
        if self.dynamic and not (shapes[0] and shapes[0][0] > 1):
            shapes[0] = (3, 4)
        self.inputs = list(self._arguments(kinds, shapes))
        self._runs: list[dict[str, Any]] = []
        for arguments in self.inputs:
            named = zip("abc", [item.clone() for item in arguments], strict=False)
            self._runs.append({"torch": torch, "F": torch.nn.functional, **dict(named)})
        self._owned: dict[str, bool] = dict.fromkeys("abc"[: len(kinds)], False)
        self._unused: list[str] = []
        self.lines: list[str] = []

    def _arguments(
        self, kinds: list[torch.dtype], shapes: list[tuple[int, ...]]
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """The example, one with special values, and other sizes, from 2 on as torch.export assumes."""
        random = self._random
        for special in (False, True) if random.random() < 0.5 else (False,):
            yield tuple(_tensor(random, *pair, special) for pair in zip(kinds, shapes, strict=True))
        size = shapes[0][0] if self.dynamic else 0
        for other in random.sample((2, 5, 6, 7), 2) if self.dynamic else ():
            resized = [(other, *s[1:]) if s and s[0] == size else s for s in shapes]
            yield tuple(_tensor(random, *pair, False) for pair in zip(kinds, resized, strict=True))

    def dynamic_shapes(self) -> Any:
        """The dimension 0 of every input that has the size of the first one's."""
        if not self.dynamic:
            return None
        size = self.inputs[0][0].shape[0]
        return tuple({0: "n"} if x.dim() and x.shape[0] == size else None for x in self.inputs[0])

    def write(self) -> str:
        """The text of a whole program."""
        wanted = self._random.randint(3, 10)
        for _ in range(wanted * 8):
            if len(self.lines) >= wanted:
                break
            self._statement()
        results = self._unused[-4:] or list(self._owned)[-1:]
        arguments = ", ".join("abc"[: len(self.inputs[0])])
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {', '.join(results)}"])
        return f"def program({arguments}):\n{body}\n"

    def _statement(self) -> None:
        share = self._random.random()
        templates = WRITES if share < 0.12 else VIEWS if share < 0.3 else MAKES
        group = self._random.choice(list(templates.values()))
        template = self._random.choice(group)
        text, used = self._filled(template, templates is WRITES)
        if text is None:
            return
        if templates is WRITES:
            if self._runs_everywhere(text, None):
                self.lines.append(text)
                self._unused.append(used[0])
            return
        name = next(self._names)
        line = f"{name} = {text}"
        if not self._runs_everywhere(line, name):
            return
        self.lines.append(line)
        self._owned[name] = templates is MAKES or all(self._owned[other] for other in used)
        self._unused = [other for other in self._unused if other not in used] + [name]

    def _filled(self, template: str, write: bool) -> tuple[str | None, list[str]]:
        """A template with variables and numbers in the place of its letters; None where there is none."""
        used = []
        numbers = {
            "{d}": lambda: self._random.choice(("0", "-1", "1", "-1", "2")),
            "{k}": lambda: self._random.choice(("1", "2", "3")),
            "{s}": lambda: self._random.choice(("0.5", "2.0", "-1.5", "3.0", "2", "-3", "7")),
            "{n}": lambda: self._random.choice(("2", "-3", "5", "1")),
            "{b}": lambda: self._random.choice(("True", "False")),
            "{t}": lambda: self._random.choice(
                ("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool")
            ),
        }
        first = self._runs[0]
        kinds = {
            "{x}": lambda x: True,
            "{f}": lambda x: x.dtype.is_floating_point,
            "{i}": lambda x: not x.dtype.is_floating_point and x.dtype != torch.bool,
            "{l}": lambda x: x.dtype == torch.int64,
            "{m}": lambda x: x.dtype == torch.bool,
            "{p}": lambda x: x.dtype.is_floating_point and x.dim() >= 3,
            "{q}": lambda x: x.dtype.is_floating_point and x.dim() == 4,
        }
        for letter, accepts in kinds.items():
            while letter in template:
                found = [
                    name
                    for name in self._owned
                    if accepts(first[name]) and (self._owned[name] or not write or used)
                ]
                if not found:
                    return None, used
                used.append(self._recent(found))
                template = template.replace(letter, used[-1], 1)
        for letter, number in numbers.items():
            while letter in template:
                template = template.replace(letter, number(), 1)
        return template, used

    def _recent(self, names: list[str]) -> str:
        """A variable, rather a late one."""
        return names[max(self._random.randrange(len(names)), self._random.randrange(len(names)))]

    def _runs_everywhere(self, line: str, name: str | None) -> bool:
        for run in self._runs:
            try:
                with torch.no_grad():
                    exec(line, run)
            except Exception:  # Whatever eager refuses is no program.
                return False
            if name is not None and not _is_usable(run[name]):
                return False
        return True


def _is_usable(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.numel() <= _MOST_ELEMENTS
        and value.dim() <= 5
        and not value.is_complex()
    )


def program(seed: int) -> Program:
    """The program of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = _Writer(Random(seed))
        text = writer.write()
    namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    sizes = [f"# {name}: {list(x.shape)} {x.dtype}" for name, x in zip("abc", writer.inputs[0], strict=False)]
    shapes = writer.dynamic_shapes()
    source = "\n".join([*sizes, f"# dynamic_shapes: {shapes}", text])
    return Program(seed, namespace["program"], writer.inputs[0], writer.inputs[1:], source, shapes)

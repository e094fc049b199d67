"""Mutants of symbolic functions: one operator or constant of each is changed."""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import random
from collections.abc import Iterator

_PAIRS = (
    "Add Sub|Mul Div|Greater Less|GreaterOrEqual LessOrEqual|And Or|Max Min|ReduceMax ReduceMin|Floor Ceil|"
    "ReduceSum ReduceMean|ArgMax ArgMin|Sin Cos|Exp Log|Tanh Sigmoid|Relu Abs|MaxPool AveragePool|Neg Abs"
)
SWAPPED = {
    name: other for pair in _PAIRS.split("|") for name, other in (pair.split(), reversed(pair.split()))
}
"""ONNX operators of the same signature, each with the one that takes its place."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one function.

    Attributes:
        path: the file, relative to the repository.
        function: the name of the function.
        entry: line and column of the first statement of its body, from 1 and 0.
        line, start, end: what is replaced, as columns in UTF-8 bytes.
        new: what takes its place.
    """

    path: str
    function: str
    entry: tuple[int, int]
    line: int
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.new.encode() + line[self.end :]).decode()
        return "".join(lines)

    def describe(self, text: str) -> str:
        """Where it is, and what the line becomes."""
        changed = self.apply(text).splitlines()[self.line - 1].strip()
        return f"{self.path}:{self.line} in {self.function}: {changed}"


def _replacements(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Parts of a body that are changed, and into what."""
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Raise):
                return
            if isinstance(node, ast.Call):
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    if not isinstance(argument, ast.Constant):
                        continue
                    value = argument.value
                    if isinstance(value, str) and value in SWAPPED:
                        yield argument, repr(SWAPPED[value]).replace("'", '"')
                    elif isinstance(value, bool):
                        yield argument, repr(not value)
                    elif isinstance(value, (int, float)):
                        yield argument, repr(value + 1)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def mutants(root: pathlib.Path, count: int, seed: int, part: str = "symbolics") -> list[Mutant]:
    """So many mutants of the symbolic functions of a repository, at most one per function.

    The choice depends on the files and the seed alone.

    Args:
        part: the folder or file, relative to the repository, whose functions are changed.
    """
    functions = list(mutants_of_functions(root, part))
    generator = random.Random(seed)
    generator.shuffle(functions)
    return [generator.choice(choices) for choices in functions[:count]]


@functools.cache
def mutants_of_functions(root: pathlib.Path, part: str = "symbolics") -> tuple[list[Mutant], ...]:
    """All mutants of each symbolic function of a folder or file, in the order of the files."""
    found: list[list[Mutant]] = []
    folder = root / part
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        text = path.read_text(encoding="utf-8")
        for function in _functions(ast.parse(text)):
            documented = ast.get_docstring(function) is not None
            if documented and len(function.body) == 1:
                continue
            first = function.body[1 if documented else 0]
            # A decorated function begins with its decorators.
            line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))])
            choices = [
                Mutant(
                    path.relative_to(root).as_posix(),
                    function.name,
                    (line, first.col_offset),
                    node.lineno,
                    node.col_offset,
                    node.end_col_offset or 0,
                    new,
                )
                for node, new in _replacements(function)
                if node.lineno == node.end_lineno
            ]
            if choices:
                found.append(choices)
    return tuple(found)

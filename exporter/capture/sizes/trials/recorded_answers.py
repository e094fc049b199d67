"""Reuses the values that a recording read from tensors when the model runs at other sizes.

A number of rows that depends on data, as that of `x[mask]`, is a known number in such a run, as is an integer
that Python code reads from a tensor: operators on symbolic sizes take about fifty times longer.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from ....torch_boundary.containers import pytree
from ....torch_boundary.operators.overloads import Args, Kwargs, OpOverload, Run, schema_of
from ....torch_boundary.symbolic_numbers import GuardOnDataDependentSymNode, ShapeEnv
from ...user_lines import CodeLine, user_line_in
from .operator_trace import READ

Question = tuple[str, str]
"""A line of the model that reads a value, and the type of the value: one of `QUESTIONS`."""
QUESTIONS = {bool: "branch", int: "int", float: "float"}
"""The names of the Python types that code reads from tensors."""
_ROWS = 3
"""The number of rows, or the number of elements where that is less. A recording follows the side of a branch
for any number of rows but 0; and 1 broadcasts."""


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class AnswersOfLoop(list[Any]):
    """The answers in the recorded iterations of a loop; a run with more iterations repeats them."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(list.__iter__(self))


class AnsweringEnvironment(ShapeEnv):  # type: ignore[misc]
    """A `ShapeEnv` that answers questions about numbers read from tensors as an earlier recording did.

    Args:
        answers: the answers of the recording in order, by question; a line may ask several times.
    """

    def __init__(self, answers: Mapping[Question, Sequence[object]], **settings: object):
        self._answers = answers
        self._remaining: dict[Question, Iterator[Any]] = {}
        self._makes_rows = False
        super().__init__(**settings)

    def restart(self) -> None:
        """Begin with the first answers."""
        self._remaining = {question: iter(values) for question, values in self._answers.items()}

    def evaluate_sym_node(
        self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        """The value of a number; one that depends on the values of tensors has the value of the recording."""
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode:
            if not self._remaining:
                raise
            question = question_at(current_line(), QUESTIONS[sym_node.pytype])
            answer = next(self._remaining.get(question, iter(())), None)
            if answer is None:
                raise
            return answer

    def with_known_rows(self, run: Run) -> Run:
        """A function that calls operators; integers that depend on data are known in their results.

        Args:
            run: calls an operator.
        """

        def call(operator: OpOverload, args: Args, kwargs: Kwargs) -> Any:
            if schema_of(operator).name == READ and args[0].dtype in _INTEGERS and args[0].constant is None:
                # Arithmetic with the tensor gives known numbers from now on.
                known: Any = torch.tensor(_ROWS, dtype=args[0].dtype)
                args[0].constant = known.constant
                return _ROWS
            self._makes_rows = True
            try:
                result = run(operator, args, kwargs)
            finally:
                self._makes_rows = False
            if isinstance(result, torch.Tensor):
                return _at_known_sizes(result)
            return pytree.tree_map_only(torch.Tensor, _at_known_sizes, result)

        return call

    def _constrain_range_for_size(
        self, symbol: sympy.Symbol, min: int | None = None, max: int | None = None
    ) -> None:
        """Torch calls this for each size that depends on data, with the number of elements as its maximum."""
        super()._constrain_range_for_size(symbol, min, max)
        if self._makes_rows:
            rows = sorted((min or 0, _ROWS, _ROWS if max is None else max))[1]
            self._set_replacement(symbol, sympy.Integer(rows), "a number of rows")


def _at_known_sizes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with Python's integers as its sizes, where these are known."""
    numbers = (*tensor.shape, *tensor.stride())
    if all(type(number) is int for number in numbers):
        return tensor
    if not all(type(number) is int or number.node.expr.is_Integer for number in numbers):
        return tensor
    shape, strides = ([int(number) for number in item] for item in (tensor.shape, tensor.stride()))
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)


def question_at(code_line: CodeLine | None, number: str) -> Question:
    """The question that a line asks; `number` is one of `QUESTIONS`."""
    return "" if code_line is None else f"{code_line.file}:{code_line.line}", number


def current_line() -> CodeLine | None:
    """The line of the user's code that runs now."""
    return user_line_in([traceback.extract_stack()], innermost=True)

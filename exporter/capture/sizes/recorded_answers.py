"""Reuses the values that a recording read from tensors when the model runs at other sizes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...torch_boundary.symbolic_numbers import GuardOnDataDependentSymNode, ShapeEnv
from ..user_lines import CodeLine, user_line_in

Question = tuple[str, str]
"""A line of the model that reads a value, and the type of the value: one of `QUESTIONS`."""
QUESTIONS = {bool: "branch", int: "int", float: "float"}
"""The names of the Python types that code reads from tensors."""


class AnsweringEnvironment(ShapeEnv):  # type: ignore[misc]
    """A `ShapeEnv` that answers questions about numbers read from tensors as an earlier recording did.

    Args:
        answers: the answers of the recording in order, by question; a line may ask several times.
    """

    def __init__(self, answers: Mapping[Question, Sequence[object]], **settings: object):
        self._answers = answers
        self._remaining: dict[Question, Iterator[Any]] = {}
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


def question_at(code_line: CodeLine | None, number: str) -> Question:
    """The question that a line asks; `number` is one of `QUESTIONS`."""
    return "" if code_line is None else f"{code_line.file}:{code_line.line}", number


def current_line() -> CodeLine | None:
    """The line of the user's code that runs now."""
    return user_line_in([traceback.extract_stack()], innermost=True)

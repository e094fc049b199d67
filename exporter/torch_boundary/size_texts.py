"""Formats dynamic sizes as the example's numbers when the user's code makes text of them.

torch writes a symbolic size as `s77`, so `f"{height}x{width}" == "24x24"` would never be true, and
`len(str(height))` would be the length of the symbol. Most texts are messages and change nothing. Each is
recorded as a question: later trials at other sizes show whether the result depends on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sympy
import torch

from .process.process_state import replace_attribute
from .size_questions import Question, questions_of, user_frame


def _number_of_text(size: torch.SymInt | torch.SymFloat) -> int | float | None:
    """Return the example's number if the user's code formats a size, and record it; None for other code."""
    node = size.node
    frame = user_frame() if node.has_hint() else None
    if frame is None:
        return None
    number: int | float = node.hint
    expression = node.expr
    conditions: list[sympy.Basic] = [sympy.Eq(expression, number)]
    if isinstance(number, int) and number >= 0:
        # The last conditions are tried first: if only the length matters, all sizes of that length stay.
        digits = len(str(number))
        conditions.append(sympy.Lt(expression, 10**digits))
        if digits > 1:
            conditions.append(sympy.Ge(expression, 10 ** (digits - 1)))
    questions = questions_of(node.shape_env)
    for condition in conditions:
        questions.setdefault(
            condition, Question(True, frame.f_code.co_filename, frame.f_lineno, is_text=True)
        )
    return number


@contextlib.contextmanager
def use_example_texts() -> Iterator[None]:
    """Format symbolic sizes as the example's numbers within the context, in the user's code only."""
    with contextlib.ExitStack() as patches:
        for number_type in (torch.SymInt, torch.SymFloat):
            patches.enter_context(replace_attribute(number_type, "__repr__", _represent))
            patches.enter_context(replace_attribute(number_type, "__format__", _format))
        yield


def _represent(size: torch.SymInt | torch.SymFloat) -> str:
    number = _number_of_text(size)
    return str(size.node) if number is None else repr(number)


def _format(size: torch.SymInt | torch.SymFloat, specification: str) -> str:
    # torch's own numbers take no specification, such as the `03d` of f"{height:03d}".
    number = _number_of_text(size)
    return format(str(size.node) if number is None else number, specification)

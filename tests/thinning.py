"""Which of many similar cases a quick run takes."""

import collections
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import MarkDecorator, ParameterSet


class Variants:
    """Marks the variants of a subject that are left to full runs.

    Args:
        first: how many variants of each subject quick runs take.
        step: of the further ones, quick runs take every `step`-th.
    """

    def __init__(self, first: int, step: int):
        self._first, self._step = first, step
        self._counts = collections.Counter[str]()

    def marks(self, subject: str = "") -> list[MarkDecorator]:
        """The marks of the next variant of a subject."""
        self._counts[subject] += 1
        further = self._counts[subject] - self._first
        return [] if further <= 0 or further % self._step == 0 else [pytest.mark.sweep]


def thin_out(cases: Iterable[Any], step: int = 2) -> list[ParameterSet]:
    """Parameters of a test: every `step`-th case in quick runs, all of them in full ones.

    Args:
        cases: values, tuples of values for several parameters, or results of `pytest.param`.
    """
    variants = Variants(1, step)
    parameters = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        parameter = case if isinstance(case, ParameterSet) else pytest.param(*values)
        marks = (*parameter.marks, *variants.marks())
        parameters.append(pytest.param(*parameter.values, id=parameter.id, marks=marks))
    return parameters

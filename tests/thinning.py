"""Which of many similar cases a quick run takes."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def thin_out(cases: Iterable[Any], step: int = 2) -> list[ParameterSet]:
    """Parameters of a test: every `step`-th case in quick runs, all of them in full ones.

    Args:
        cases: values, tuples of values for several parameters, or results of `pytest.param`.
    """
    parameters = []
    for position, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        parameter = case if isinstance(case, ParameterSet) else pytest.param(*values)
        marks = () if position % step == 0 else (pytest.mark.sweep,)
        parameters.append(pytest.param(*parameter.values, id=parameter.id, marks=(*parameter.marks, *marks)))
    return parameters

"""torch's decompositions of single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import probe
from .overloads import OpOverload, bind_arguments


def table() -> Mapping[Any, Callable[..., Any]]:
    """The decomposition table of torch; empty if this torch lacks it."""
    if not probe.has(probe.DECOMPOSITIONS):
        return {}
    from torch._decomp import decomposition_table

    return decomposition_table


def is_decomposable(operator: OpOverload) -> bool:
    """Whether torch can decompose an operator."""
    rules = table()
    return operator in rules or (bool(rules) and bool(operator._can_decompose()))


def apply(operator: OpOverload, call: Mapping[str, object]) -> object:
    """Call an operator with arguments by name; a composite operator without a table entry is decomposed."""
    positional, named = bind_arguments(operator, call)
    if operator._can_decompose() and operator not in table():
        return operator.decompose(*positional, **named)
    return operator(*positional, **named)

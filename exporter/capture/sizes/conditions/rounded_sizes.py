"""Finds numbers that torch.export divides or rounds from dynamic sizes, and fixes at those of the example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ....torch_boundary import symbolic_sizes as functions
from ..trials.operator_trace import line_of_guard
from .python_expressions import expression_text

_CONDITIONS = (functions.Mod, functions.PythonMod, sympy.Min, sympy.Max, functions.Min, functions.Max)
"""Functions that, in a guard, restrict sizes without fixing one."""


def describe_rounded(captured: Sequence[object]) -> str | None:
    """A description of an integer that was divided or rounded from a dynamic size and fixed, or None.

    torch.export fixes `int(0.7 * size)`, and `size // 2` for an operator without symbolic sizes, at its
    number in the example, behind a guard.
    """
    tensors = [counterpart for counterpart in captured if isinstance(counterpart, torch.Tensor)]
    sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
    symbolic = next((size for size in sizes if isinstance(size, torch.SymInt)), None)
    if symbolic is None:
        return None
    definitions = functions.definitions_of(symbolic.node.shape_env)
    for guard in symbolic.node.shape_env.guards:
        if not isinstance(guard.expr, sympy.Eq):
            continue
        computed, number = guard.expr.xreplace(definitions).args
        if number.is_Integer and _is_pinned(computed, number):
            text = expression_text(computed, {symbol: str(symbol) for symbol in computed.free_symbols})
            return (
                f"{line_of_guard(guard) or 'the model'} makes a number of a dynamic size, {text}, and "
                f"torch.export fixes it at {number}: the operator that takes it takes no symbolic size, or "
                "it was a float (write size * 7 // 10 for int(size * 0.7)), or it is the number of results "
                "of split(length) or unbind (take a fixed number of parts with tensor_split, or the rows of "
                "unfold); or make the dimension static"
            )
    return None


def _is_pinned(computed: sympy.Expr, number: sympy.Integer) -> bool:
    """Whether only few sizes give the same number: it is divided by constants, or rounded.

    Comparisons with 0 or 1 do not count, because every broadcasting operator makes them. Neither does a
    quotient rounded up to 1, the number of parts of all sizes up to the divisor.
    """
    if isinstance(computed, functions.CeilToInt):
        quotient = computed.args[0]
        if isinstance(quotient, functions.IntTrueDiv) and quotient.args[1].is_number:
            return bool(number > 1)
    divided = computed.atoms(functions.FloorDiv, functions.CleanDiv)
    if computed.has(*_CONDITIONS) or not all(division.args[1].is_number for division in divided):
        return False
    return bool((bool(divided) and number > 1) or computed.has(*functions.ROUNDINGS))

"""Computes bounds and expansions once for each distinct sub-expression; torch repeats them per occurrence."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import interp, value_ranges

from ..process.process_state import replace_attribute

_MOST_PARTS = 1 << 14
Bound = Any
"""The result of an analysis of an expression, such as its range of values."""


@contextlib.contextmanager
def shared_parts() -> Iterator[None]:
    """Compute the bounds and the expansion of each distinct sub-expression only once, within the context."""
    # A size limit, because expressions stay in the cache until the end of the capture.
    expand = functools.lru_cache(_MOST_PARTS)(symbolic_shapes._fast_expand)
    with (
        replace_attribute(value_ranges, "sympy_interp", _interpret),
        replace_attribute(symbolic_shapes, "_fast_expand", expand),
    ):
        yield


def _interpret(
    analysis: object,
    environment: dict[sympy.Symbol, Bound],
    expression: sympy.Basic,
    *,
    index_dtype: torch.dtype = torch.int64,
    missing_handler: Callable[[sympy.Symbol], Bound] | None = None,
) -> Bound:
    """Replace torch's `sympy_interp`: same arguments and result, but each sub-expression is computed once."""
    results: dict[sympy.Basic, Bound] = {}

    def result_of(part: sympy.Basic) -> Bound:
        if not part.args:
            return _ORIGINAL(
                analysis, environment, part, index_dtype=index_dtype, missing_handler=missing_handler
            )
        # torch recurses into every occurrence, which takes exponential time for nested expressions.
        if part not in results:
            operands = [result_of(operand) for operand in part.args]
            results[part] = interp._run_sympy_handler(analysis, operands, part, index_dtype=index_dtype)
        return results[part]

    return result_of(expression)


_ORIGINAL = interp.sympy_interp

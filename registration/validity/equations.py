"""The equations of Einsum."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..printable import shortened

_TERM = re.compile(r"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?")


def equation_problem(equation: str, ranks: Sequence[int | None]) -> str | None:
    """What is wrong with an equation for operands of these ranks, None for an unknown rank; else None.

    The grammar is that of the operator's text: terms of letters with at most one ellipsis, separated by
    commas, and optionally an arrow and the term of the result.
    """
    operand_text, arrow, result = equation.replace(" ", "").partition("->")
    terms, quoted_equation = operand_text.split(","), shortened(equation)
    for term in (*terms, result):
        if not _TERM.fullmatch(term):
            return f"{quoted_equation} is not an equation: a term has letters and at most one ellipsis"
    if len(terms) != len(ranks):
        return f"equation {quoted_equation} has {len(terms)} operands, and the node {len(ranks)} inputs"
    for term, rank in zip(terms, ranks, strict=True):
        letters = len(term.replace("...", ""))
        if rank is not None and (letters > rank if "..." in term else letters != rank):
            return (
                f"the term {shortened(term)} of equation {quoted_equation} does not fit an input of "
                f"rank {rank}"
            )
    if arrow:
        labels = result.replace("...", "")
        if len(set(labels)) != len(labels):
            return f"the result of equation {quoted_equation} repeats a letter"
        unknown = sorted(set(labels) - set(operand_text))
        if unknown:
            return f"the result of equation {quoted_equation} has '{unknown[0]}', which no operand has"
    return None

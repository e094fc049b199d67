"""Operators that return their argument unchanged at some sizes: padding by 0, resizing to the same size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PADS = re.compile(r"aten::(constant_pad_nd|pad|(reflection|replication)_pad[123]d)")
_RESIZES = re.compile(r"aten::_?upsample_(nearest(_exact)?|linear|bilinear|bicubic|trilinear)[123]d(_aa)?")


def may_be_neutral(name: str) -> bool:
    """Whether an operator, by the name of its schema, returns its argument unchanged at some sizes."""
    return bool(_PADS.fullmatch(name) or _RESIZES.fullmatch(name))


def is_neutral(name: str, args: Sequence[Any]) -> bool:
    """Whether a call returns its first argument unchanged.

    Args:
        name: of the operator's schema.
        args: its positional arguments; sizes are numbers.
    """
    if _PADS.fullmatch(name):
        return isinstance(args[1], (list, tuple)) and all(_is_number(amount, 0) for amount in args[1])
    if not _RESIZES.fullmatch(name) or not isinstance(args[1], (list, tuple)):
        return False
    sizes = list(args[0].shape[2:])
    # Scales would replace the quotients of the sizes, which are 1.
    scales = [
        scale
        for item in args[2:]
        for scale in (item if isinstance(item, (list, tuple)) else [item])
        if isinstance(scale, float)
    ]
    return list(args[1]) == sizes and all(scale == 1.0 for scale in scales)


def adds_neutral_call(model: Sequence[Sequence[object]], graph: Sequence[Sequence[object]]) -> bool:
    """Whether the first operator of a model's trace that the graph's trace lacks is such an operator.

    Args:
        model, graph: the steps of both; the first item of each is the operator.
    """
    pairs = zip(model, graph, strict=False)
    first = next((i for i, (step, graph_step) in enumerate(pairs) if step != graph_step), len(graph))
    return first < len(model) and may_be_neutral("::".join(str(model[first][0]).split(".")[:2]))


def _is_number(item: object, number: int) -> bool:
    return type(item) is int and item == number

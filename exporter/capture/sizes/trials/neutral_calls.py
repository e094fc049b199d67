"""Operators that return their argument unchanged at some sizes.

These are padding by 0, resizing to the same size, and joining a tensor with tensors without elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PADS = re.compile(r"aten::(constant_pad_nd|pad|(reflection|replication)_pad[123]d)")
_RESIZES = re.compile(r"aten::_?upsample_(nearest(_exact)?|linear|bilinear|bicubic|trilinear)[123]d(_aa)?")
_CREATES = re.compile(r"aten::(new_)?(zeros|ones|full|empty)(_like)?")
_JOINS = re.compile(r"aten::(cat|concat|concatenate)")


def may_be_neutral(name: str) -> bool:
    """Whether an operator, by the name of its schema, returns its argument unchanged at some sizes."""
    return bool(_PADS.fullmatch(name) or _RESIZES.fullmatch(name) or _JOINS.fullmatch(name))


def is_neutral(name: str, args: Sequence[Any]) -> bool:
    """Whether a call returns its first argument unchanged, or one of the tensors that it joins.

    Args:
        name: of the operator's schema.
        args: its positional arguments; sizes are numbers.
    """
    if _PADS.fullmatch(name):
        return isinstance(args[1], (list, tuple)) and all(_is_number(amount, 0) for amount in args[1])
    if _JOINS.fullmatch(name):
        axis = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
        first = args[0][0]
        # PyTorch joins an empty tensor of rank 1 with tensors of any rank.
        full = [item for item in args[0] if item.dim() == 0 or (item.shape != (0,) and item.shape[axis] != 0)]
        return len(full) < 2 and all(item.dtype == first.dtype for item in args[0])
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


def argument_of(args: Sequence[Any]) -> Any:
    """The argument that a call returns unchanged; of tensors that are joined, the one with elements."""
    if not isinstance(args[0], (list, tuple)):
        return args[0]
    # Without any elements, an empty tensor of rank 1 has not the shape of the result.
    return max(args[0], key=lambda item: (item.numel() > 0, item.dim()))


def adds_neutral_call(model: Sequence[Sequence[object]], graph: Sequence[Sequence[object]]) -> bool:
    """Whether the first operator of a model's trace that the graph's trace lacks is such an operator.

    The operators that create the tensor that is joined come before.

    Args:
        model, graph: the steps of both; the first item of each is the operator.
    """
    pairs = zip(model, graph, strict=False)
    first = next((i for i, (step, graph_step) in enumerate(pairs) if step != graph_step), len(graph))
    names = ("::".join(str(step[0]).split(".")[:2]) for step in model[first:])
    return may_be_neutral(next((name for name in names if not _CREATES.fullmatch(name)), ""))


def _is_number(item: object, number: int) -> bool:
    return type(item) is int and item == number

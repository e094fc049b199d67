"""The shapes that a source operator requires of its operands, as a table of text.

A line is `operators: operands`. An operand is a name with its shape:

    perm[r(x)]        one dimension, whose size is the rank of operand `x`
    boxes[n,4]        two dimensions; `n` is the same size wherever it occurs in the line
    input[...,*,*]    at least two dimensions
    value[]           a scalar
    shape<=1          at most one dimension

An operand that is a list has this shape in each of its items. Unknown sizes and ranks are not checked.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ..errors import ArgumentError

_OPERAND = re.compile(r"(\w+)(?:\[(.*)\]|<=(\d+))")


@dataclasses.dataclass(frozen=True)
class OperandShape:
    """The shape of one operand.

    Attributes:
        sizes: its last dimensions: a number, the name of a size, `r(operand)`, or `*`.
        is_open: whether it may have more dimensions before these.
        maximum_rank: the largest rank, if only the rank is restricted.
    """

    name: str
    text: str
    sizes: tuple[str, ...] = ()
    is_open: bool = False
    maximum_rank: int | None = None


def parse_table(text: str) -> dict[str, list[OperandShape]]:
    """The operands of each operator."""
    table: dict[str, list[OperandShape]] = {}
    for line in text.strip().splitlines():
        names, _, operands = line.partition(":")
        parsed = [_parse_operand(operand) for operand in operands.split()]
        table.update({name: [*table.get(name, ()), *parsed] for name in names.split()})
    return table


def _parse_operand(text: str) -> OperandShape:
    match = _OPERAND.fullmatch(text)
    assert match is not None, f"'{text}' is not an operand with a shape"
    name, sizes_text, maximum = match.groups()
    shape_text = text.removeprefix(name)
    if maximum is not None:
        return OperandShape(
            name, f"at most {maximum} dimension{'s' if maximum != '1' else ''}", maximum_rank=int(maximum)
        )
    sizes = tuple(sizes_text.split(",")) if sizes_text else ()
    is_open = sizes[:1] == ("...",)
    return OperandShape(
        name, f"the shape {shape_text}" if sizes_text else "no dimensions", sizes[is_open:], is_open
    )


def check_operand_shapes(operands: Sequence[OperandShape], arguments: Mapping[str, object]) -> None:
    """Check the shapes of an operator's operands.

    Raises:
        ArgumentError: an operand cannot have the shape that the operator demands.
    """
    named: dict[str, int] = {}
    for operand in operands:
        argument = arguments.get(operand.name)
        for value in argument if isinstance(argument, (list, tuple)) else (argument,):
            if isinstance(value, ir.Value) and value.shape is not None:
                _check(operand, value.shape.dims, arguments, named)


def _check(
    operand: OperandShape,
    shape: Sequence[int | ir.SymbolicDim],
    arguments: Mapping[str, object],
    named: dict[str, int],
) -> None:
    rank = len(shape)
    if operand.maximum_rank is not None:
        fits = rank <= operand.maximum_rank
    else:
        count = len(operand.sizes)
        fits = rank >= count if operand.is_open else rank == count
        last = zip(operand.sizes, shape[rank - count :], strict=True) if fits else ()
        fits = fits and all(_fits(size, dimension, arguments, named) for size, dimension in last)
    if not fits:
        shape_text = ", ".join(
            "?" if isinstance(size, ir.SymbolicDim) and size.value is None else str(size) for size in shape
        )
        text = re.sub(r"r\((\w+)\)", r"rank of \1", operand.text)
        raise ArgumentError(f"'{operand.name}' has the shape [{shape_text}], but must have {text}")


def _fits(
    size: str, dimension: int | ir.SymbolicDim, arguments: Mapping[str, object], named: dict[str, int]
) -> bool:
    """Whether a dimension may have a size of the table."""
    # An unknown size may be right, and is left to the runtime.
    if size == "*" or not isinstance(dimension, int):
        return True
    if size.isdecimal():
        return dimension == int(size)
    if size.startswith("r("):
        operand = arguments.get(size[2:-1])
        shape = operand.shape if isinstance(operand, ir.Value) else None
        return shape is None or dimension == len(shape)
    # The same letter is the same size in all operands.
    return named.setdefault(size, dimension) == dimension
